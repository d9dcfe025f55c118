# Set-up for ci/dev, which sources this file: Debian packages, and PyTorch in a cache that all clones share.
# Needs from there: root, cache, say, die.
# shellcheck shell=bash disable=SC2154,SC2034

torch_pin=2.15.0     # what development and CI use
torch_compat=2.11.0  # the oldest that is supported
python_packages="numpy safetensors pytest pytest-xdist jsonschema"

packages=(g++ binutils cmake ninja-build ccache git python3
  libboost1.81-dev libboost-filesystem1.81-dev libfmt-dev nlohmann-json3-dev libcli11-dev libdw-dev
  libgtest-dev libgmock-dev libbenchmark-dev clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev llvm-14)
# What `apt-get download` fetches where a Boost of the user's is in the way of Debian's 1.81.
boost_packages=(libboost1.81-dev libboost-{filesystem,system,atomic}1.81-dev
  libboost-{filesystem,system,atomic}1.81.0)
boost_prefix=$cache/boost-1.81

# ---------------------------------------------------------------------------------------------- Debian packages

can_be_root() {
  ((EUID == 0)) && return
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }
}

as_root() {
  local prefix=(env DEBIAN_FRONTEND=noninteractive)
  ((EUID == 0)) || prefix=(sudo "${prefix[@]}")
  "${prefix[@]}" "$@" </dev/null >&2
}

simulate() { LC_ALL=C apt-get install -s -y --no-install-recommends "$@" 2>/dev/null; }

update_lists() {
  ((lists_updated)) && return 1
  lists_updated=1
  say "fetching the lists of packages"
  as_root apt-get -qq update
}
lists_updated=0

tell_command() {
  die "missing packages: $*" "this user cannot install them, and nothing was changed; run" \
    "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends --no-remove $*'"
}

unpack_boost() {
  say "a Boost that is installed conflicts with 1.81, and stays; unpacking 1.81 into $boost_prefix"
  mkdir -p "$cache"
  local unpacked
  unpacked=$(mktemp -d "$cache/boost-1.81.XXXXXX")
  cd "$unpacked" || exit 125
  local download=(apt-get download -q -o APT::Sandbox::User=root "${boost_packages[@]}")
  "${download[@]}" >&2 || { can_be_root && update_lists && "${download[@]}" >&2; } ||
    die "cannot fetch Boost 1.81; apt-get's own message is above" "run apt-get update as root, then this again"
  local package
  for package in *.deb; do
    dpkg -x "$package" .
    rm "$package"
  done
  cd "$root" || exit 125
  # Renamed only when complete; a clone that came first has the same files.
  chmod 755 "$unpacked"
  mv -T "$unpacked" "$boost_prefix" 2>/dev/null || rm -rf "$unpacked"
  [[ -d $boost_prefix/usr/include/boost ]] || die "cannot unpack Boost 1.81 into $boost_prefix"
}

# Whether a Boost that Debian's 1.81 would remove is installed.
other_boost() {
  dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 'libboost[0-9]*-dev' 2>/dev/null |
    grep -v 1.81 | grep -q '^.i '
}

# Puts those of the packages given that are not installed into $missing, which is its caller's.
find_missing() {
  local installed package
  missing=()
  installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^.i //p' || true)
  for package in "$@"; do
    [[ $package == libboost* && -d $boost_prefix ]] && continue
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
}

# Takes Boost out of $missing, which is its caller's.
without_boost() {
  local package others=()
  for package in "${missing[@]}"; do
    [[ $package == libboost* ]] || others+=("$package")
  done
  missing=(${others[@]+"${others[@]}"})
}

# Installs what is missing of the packages given. Never removes one: that is what the simulation is for.
ensure_packages() {
  [[ -z ${LOCKSTEP_SKIP_PACKAGES:-} ]] || return 0
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "this system has no apt-get, need Debian 12" \
      "install these by other means and set LOCKSTEP_SKIP_PACKAGES=1: $*"
  local missing=() simulated=
  find_missing "$@"
  ((${#missing[@]})) || return 0

  local need_boost=
  if [[ " ${missing[*]}" == *" libboost"* ]] && other_boost; then
    need_boost=1
    without_boost
  fi
  if ((${#missing[@]})) && ! simulated=$(simulate "${missing[@]}"); then
    can_be_root || tell_command "${missing[@]}"
    update_lists
    simulated=$(simulate "${missing[@]}") ||
      die "apt-get cannot install ${missing[*]}" "need the packages of Debian 12 (bookworm)"
  fi
  if grep -q '^Remv ' <<<"$simulated"; then
    die "installing ${missing[*]} would remove packages; nothing was changed" "$(grep '^Remv ' <<<"$simulated")"
  fi
  if ((${#missing[@]})); then
    can_be_root || tell_command "${missing[@]}"
    say "installing ${missing[*]}"
    local install=(apt-get install -qq -y --no-install-recommends --no-remove
      -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
    as_root "${install[@]}" "${missing[@]}" || { update_lists && as_root "${install[@]}" "${missing[@]}"; } ||
      die "apt-get could not install ${missing[*]}; its own message is above"
  fi
  if [[ -n $need_boost ]]; then
    unpack_boost
  fi
}

# ---------------------------------------------------------------------------------------------- Python and PyTorch

# Interpreters to try, in this order.
pythons=(python3 python3.12 python3.11 python3.13 python3.14 python3.15 /usr/bin/python3)

# An interpreter for a venv that lasts: resolved, so that it is neither a shim nor another venv's link.
find_python() {
  local candidate
  for candidate in "${pythons[@]}"; do
    "$candidate" -c '
import ensurepip, os, sys, venv
if not (3, 11) <= sys.version_info[:2] <= (3, 15):
    sys.exit(1)
print(os.path.realpath(sys.executable), "%d.%d" % sys.version_info[:2])' 2>/dev/null && return
  done
  return 1
}

venv_complete() { # DIR TORCH
  [[ -x $1/bin/python && -f $1/.complete && $(<"$1/.complete") == "torch==$2 $python_packages" ]]
}

# The venv with this torch, in the cache; sets $venv. Only its marker, written last, makes it complete.
ensure_venv() { # TORCH
  local torch=$1 found python minor
  if ! found=$(find_python); then
    ensure_packages python3 python3-venv
    found=$(find_python) || die "no Python for PyTorch: need 3.11 to 3.15 with venv" "set LOCKSTEP_PYTHON to one with torch"
  fi
  read -r python minor <<<"$found"
  venv=$cache/venv-py$minor-torch$torch
  venv_complete "$venv" "$torch" && return
  mkdir -p "$cache"
  local lock
  exec {lock}>"$venv.lock"
  flock -n "$lock" || { say "waiting for another set-up of $venv" && flock -w 1800 "$lock"; } ||
    die "$venv: another set-up has held its lock for 30 minutes"
  if ! venv_complete "$venv" "$torch"; then
    say "installing PyTorch $torch into $venv (a few minutes, 5.5 GB)"
    [[ -f $venv/.complete && -x $venv/bin/python ]] || rm -rf "$venv"
    rm -f "$venv/.complete"
    "$python" -m venv "$venv" >&2
    # shellcheck disable=SC2086  # a list
    "$venv/bin/python" -m pip install -q --no-input --disable-pip-version-check "torch==$torch" $python_packages \
      </dev/null >&2 || die "pip could not install torch $torch; its own message is above"
    "$venv/bin/python" -c 'import numpy, safetensors, torch' || die "$venv: torch $torch does not import"
    echo "torch==$torch $python_packages" >"$venv/.complete"
  fi
  exec {lock}>&-
}

has_torch() { "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null; }

# Sets and exports LOCKSTEP_PYTHON.
ensure_torch() {
  if [[ -n ${LOCKSTEP_PYTHON:-} ]]; then
    LOCKSTEP_PYTHON=$(command -v "$LOCKSTEP_PYTHON") || die "LOCKSTEP_PYTHON: no such interpreter"
    [[ $LOCKSTEP_PYTHON == /* ]] || LOCKSTEP_PYTHON=$PWD/$LOCKSTEP_PYTHON
    has_torch "$LOCKSTEP_PYTHON" || die "LOCKSTEP_PYTHON: $LOCKSTEP_PYTHON has no torch" "install one, or unset it"
    export LOCKSTEP_PYTHON
    return
  fi
  if [[ -e .venv && $(readlink -f .venv) != "$(readlink -f "$cache")"/* ]]; then
    # The user's: used, never replaced.
    has_torch .venv/bin/python || die ".venv is not ours and has no torch; it was left alone" \
      "install torch $torch_pin there, or move it away, or set LOCKSTEP_PYTHON"
  elif ! venv_complete .venv "$torch_pin"; then
    ensure_venv "$torch_pin"
    ln -sfn "$venv" .venv
  fi
  export LOCKSTEP_PYTHON=$root/.venv/bin/python
}

# Without network: packages from the .deb files in DIR, PyTorch from the wheels in DIR or as some Python has it.
setup_offline() { # DIR
  local dir debs=() missing=() candidate prefix
  dir=$(readlink -e -- "$1") || die "setup --offline: there is no directory $1"
  find_missing "${packages[@]}"
  if ((${#missing[@]})); then
    debs=("$dir"/*.deb)
    [[ -e ${debs[0]} ]] || die "missing packages: ${missing[*]}" "$dir has no .deb files; nothing was changed" \
      "on a machine with network: apt-get download them and what they need, into that folder"
    local install=(apt-get install -y --no-install-recommends --no-remove --no-download "${debs[@]}")
    local simulated
    simulated=$(LC_ALL=C "${install[@]}" -s 2>&1) || die "the .deb files in $dir cannot be installed; nothing was changed" \
      "$(tail -n 5 <<<"$simulated")"
    can_be_root || die "this user cannot install packages, and nothing was changed; run" "sudo ${install[*]}"
    as_root "${install[@]}" -qq || die "apt-get could not install what is in $dir; its own message is above"
    find_missing "${packages[@]}"
    ((${#missing[@]} == 0)) || die "$dir does not have: ${missing[*]}"
  fi
  if [[ -z ${LOCKSTEP_PYTHON:-} && ! -e .venv ]]; then
    if compgen -G "$dir/torch-*.whl" >/dev/null; then
      local found python
      found=$(find_python) || die "no Python for PyTorch: need 3.11 to 3.15 with venv"
      python=${found% *}
      "$python" -m venv .venv >&2
      # shellcheck disable=SC2086  # a list
      .venv/bin/python -m pip install -q --no-input --disable-pip-version-check --no-index --find-links "$dir" \
        torch $python_packages </dev/null >&2 ||
        { rm -rf .venv && die "pip could not install torch from the wheels in $dir; its own message is above"; }
    else
      for candidate in "${pythons[@]}"; do
        has_torch "$candidate" || continue
        # A venv is linked: one made from it would see what lies below it instead.
        prefix=$("$candidate" -c 'import sys; print(sys.prefix if sys.prefix != sys.base_prefix else "")')
        if [[ -n $prefix ]]; then
          ln -s "$prefix" .venv
        else
          "$candidate" -m venv --system-site-packages --without-pip .venv >&2
        fi
        break
      done
      [[ -e .venv ]] || die "no Python here has torch, and $dir has no torch-*.whl" "set LOCKSTEP_PYTHON to one with torch"
    fi
  fi
  ensure_torch
}

command_setup() {
  if [[ ${1:-} == --offline ]]; then
    [[ $# == 2 ]] || die "setup --offline needs one folder with .deb files and wheels"
    setup_offline "$2"
    return
  fi
  (($# == 0)) || die "setup: unknown argument $1" "there is --offline DIR"
  local wanted=("${packages[@]}")
  # In one call of apt-get with the rest, where PyTorch still has to be installed and no Python can make a venv.
  if [[ -z ${LOCKSTEP_PYTHON:-} && ! -e .venv ]] && ! find_python >/dev/null; then
    wanted+=(python3-venv)
  fi
  ensure_packages "${wanted[@]}"
  ensure_torch
}
