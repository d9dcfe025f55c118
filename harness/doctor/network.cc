#include "harness/doctor/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::doctor {
namespace {

constexpr double kSlowMs = 5'000;

Item port(const Facts& facts) {
  Item item{.name = "port", .have = fmt::format("{} is free", facts.port)};
  const bool set = facts.variables.count("MASTER_PORT") != 0;
  if (facts.port_taken) {
    item.level = set ? Level::kStops : Level::kWarning;
    item.have = fmt::format("{} is taken{}", facts.port,
                            facts.port_holder.empty() ? "" : " by " + facts.port_holder);
    item.need =
        set ? "a free one in MASTER_PORT, unless that is the job"
            : "a free one: jobs without MASTER_PORT, and torchrun without --standalone, take "
              "it";
    item.to_do = "end that process, or choose another MASTER_PORT (torchrun: --standalone)";
  } else if (facts.port >= facts.own_ports.first && facts.port <= facts.own_ports.second) {
    item.level = Level::kWarning;
    item.have = fmt::format("{} is one of those that the kernel hands out ({} to {})", facts.port,
                            facts.own_ports.first, facts.own_ports.second);
    item.need = "one outside: any connection may take it before rank 0 listens";
    item.to_do = "a MASTER_PORT outside, or net.ipv4.ip_local_reserved_ports";
  }
  return item;
}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

const Interface* interface_of(const Facts& facts, const std::string& address) {
  for (const Interface& one : facts.interfaces) {
    if (std::find(one.addresses.begin(), one.addresses.end(), address) != one.addresses.end())
      return &one;
  }
  return nullptr;
}

/// What Gloo takes where no variable names an interface: the address of the host's own name.
Item host_name(const Facts& facts) {
  Item item{.name = "host name"};
  if (facts.host_addresses.empty()) {
    item.level = Level::kWarning;
    item.have = fmt::format("{} resolves to nothing", facts.host);
    item.need =
        "an address of this host: on one host Gloo falls back to the loopback, on several "
        "torchrun fails";
    item.to_do =
        fmt::format("a line \"ADDRESS {}\" in /etc/hosts, or GLOO_SOCKET_IFNAME", facts.host);
    return item;
  }
  const std::string& first = facts.host_addresses.front();
  const Interface* const at = interface_of(facts, first);
  if (is_loopback(first)) {
    item.level = Level::kWarning;
    item.have = fmt::format("{} resolves to {}, the loopback", facts.host, first);
    item.need = "an address that other hosts reach, if the job has several";
    item.to_do = "for several hosts: GLOO_SOCKET_IFNAME, and its own address in /etc/hosts";
  } else if (at == nullptr) {
    item.level = Level::kWarning;
    item.have =
        fmt::format("{} resolves to {}, an address of none of its interfaces", facts.host, first);
    item.need = "one of its own: Gloo falls back to the loopback, other hosts do not reach that";
    item.to_do = "mend /etc/hosts or the DNS, or set GLOO_SOCKET_IFNAME";
  } else {
    item.have = fmt::format("{} resolves to {} of {}", facts.host, first, at->name);
  }
  return item;
}

std::string interfaces_listed(const Facts& facts) {
  std::vector<std::string> names;
  for (const Interface& one : facts.interfaces) {
    if (one.up && !one.addresses.empty())
      names.push_back(one.name);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

bool usable(const Interface& one) { return one.up && !one.addresses.empty(); }

/// One by its full name, as Gloo has it.
Item gloo_interface(const Facts& facts) {
  Item item{.name = "GLOO_SOCKET_IFNAME", .have = "not set; Gloo takes that of the host name"};
  const auto set = facts.variables.find("GLOO_SOCKET_IFNAME");
  if (set == facts.variables.end())
    return item;
  item.have = set->second;
  std::string rest = set->second;
  while (!rest.empty()) {
    const std::string name = rest.substr(0, rest.find(','));
    rest = rest.find(',') == std::string::npos ? "" : rest.substr(rest.find(',') + 1);
    const auto at = std::find_if(facts.interfaces.begin(), facts.interfaces.end(),
                                 [&](const Interface& one) { return one.name == name; });
    if (at != facts.interfaces.end() && usable(*at))
      continue;
    item.level = Level::kStops;
    item.have = fmt::format("{}: {}", set->second,
                            at == facts.interfaces.end() ? fmt::format("there is no {}", name)
                                                         : fmt::format("{} is down, or has no "
                                                                       "address",
                                                                       name));
    item.need = "an interface that is up and has an address: " + interfaces_listed(facts);
    item.to_do = "set it to one of these, or unset it";
    break;
  }
  return item;
}

/// Beginnings of names; after = whole names; after ^ those that are not to be taken.
Item nccl_interface(const Facts& facts) {
  Item item{.name = "NCCL_SOCKET_IFNAME",
            .have = "not set; NCCL takes none of lo and docker*, if it can"};
  const auto set = facts.variables.find("NCCL_SOCKET_IFNAME");
  if (set == facts.variables.end())
    return item;
  item.have = set->second;
  std::string rest = set->second;
  const bool without = rest.rfind('^', 0) == 0;
  rest.erase(0, without ? 1 : 0);
  const bool whole = rest.rfind('=', 0) == 0;
  rest.erase(0, whole ? 1 : 0);
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= rest.size();) {
    const std::size_t comma = std::min(rest.find(',', at), rest.size());
    names.push_back(rest.substr(at, comma - at));
    at = comma + 1;
  }
  const bool any =
      std::any_of(facts.interfaces.begin(), facts.interfaces.end(), [&](const Interface& one) {
        const bool named = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return whole ? one.name == name : one.name.rfind(name, 0) == 0;
        });
        return usable(one) && named != without;
      });
  if (!any) {
    item.level = Level::kStops;
    item.have += ": no interface that is up fits";
    item.need = "one of " + interfaces_listed(facts);
    item.to_do = "set it to one of these, or unset it";
  }
  return item;
}

}  // namespace

std::vector<Item> examine_network(const Facts& facts) {
  return {port(facts), host_name(facts), gloo_interface(facts), nccl_interface(facts)};
}

/// The one that Gloo takes must do; another that does not is only a warning.
Item examine_round_trip(const Facts& facts, const RoundTrip& trip) {
  Item item{.name = fmt::format("2 ranks over {}", trip.interface)};
  if (trip.ms) {
    item.have = fmt::format("met and summed 1 MiB in {:.0f} ms", *trip.ms);
    if (*trip.ms > kSlowMs) {
      item.level = Level::kWarning;
      item.need = "less than 5 s";
      item.to_do = "look at the load of this host, and at its firewall";
    }
    return item;
  }
  const Interface* const chosen =
      facts.host_addresses.empty() ? nullptr : interface_of(facts, facts.host_addresses.front());
  const auto set = facts.variables.find("GLOO_SOCKET_IFNAME");
  const bool taken =
      set != facts.variables.end() ? set->second == trip.interface : chosen != nullptr && chosen->name == trip.interface;
  item.level = taken ? Level::kStops : Level::kWarning;
  item.have = trip.error;
  item.need = taken ? "that two ranks meet: this is the interface that Gloo takes here"
                    : "that two ranks meet, if a job is to use it";
  item.to_do = "look at its firewall and address; or choose another in GLOO_SOCKET_IFNAME";
  return item;
}

}  // namespace lockstep::doctor
