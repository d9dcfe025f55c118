#include "tests/support/typed_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "harness/history/format.h"

namespace lockstep::testing {
namespace {

using history::DType;
using history::Op;
using history::ReduceOp;

std::uint32_t site_of(Process& process, const Call& call) {
  if (call.file.empty())
    return 0;
  for (std::uint32_t i = 1; i < process.sites.size(); ++i) {
    const Frame& frame = process.sites[i].frames.front();
    if (frame.file == call.file && frame.line == call.line && frame.loops == call.loops)
      return i;
  }
  process.sites.push_back({{Frame{"/usr/lib/libtorch_cpu.so", 77, "", 0, "c10d::allreduce_", {}},
                            Frame{"/app/" + call.file, static_cast<std::uint64_t>(call.line),
                                  call.file, call.line, "step", call.loops}}});
  std::swap(process.sites.back().frames[0], process.sites.back().frames[1]);
  return static_cast<std::uint32_t>(process.sites.size() - 1);
}

std::uint32_t group_of(Process& process, const std::string& name, std::int32_t world) {
  for (std::uint32_t i = 0; i < process.groups.size(); ++i) {
    if (process.groups[i].name == name)
      return i;
  }
  Group group;
  group.name = name;
  group.size = world;
  group.my_rank = process.rank->value;
  for (const Rank rank : RankSet::all(world))
    group.ranks.push_back(rank);
  group.seen_from_creation = true;
  process.groups.push_back(group);
  return static_cast<std::uint32_t>(process.groups.size() - 1);
}

/// The digest chain as the writer makes it.
void add_to_digest(Group& group, const Collective& c) {
  static thread_local std::map<const Group*, std::uint64_t> heads;
  if (group.issued == 0)
    heads[&group] = 0;
  std::uint64_t& head = heads[&group];
  head = history::mix(
      head, history::signature(c.op, c.dtype, c.reduce_op, c.root, c.numel_in, c.numel_out));
  ++group.issued;
  if (group.issued % history::kDigestBlock == 0)
    group.digests.push_back(head);
}

}  // namespace

std::uint64_t last_event(const Run& run) {
  std::uint64_t last = kStart;
  for (const Process& process : run.processes) {
    for (const Collective& c : process.collectives)
      last = std::max({last, c.issued_ns, c.returned_ns.value_or(0), c.completed_ns.value_or(0)});
  }
  return last;
}

Call Call::at(std::string site_file, std::int32_t site_line) const {
  Call c = *this;
  c.file = std::move(site_file);
  c.line = site_line;
  return c;
}
Call Call::in_loop(std::int32_t loop_line, std::string variable) const {
  Call c = *this;
  c.loops.push_back({loop_line, std::move(variable)});
  return c;
}
Call Call::in_for(std::int32_t loop_line, std::string variable) const {
  Call c = in_loop(loop_line, std::move(variable));
  c.loops.back().runs_out = true;
  return c;
}
Call Call::async() const {
  Call c = *this;
  c.record.async = true;
  return c;
}
Call Call::pending() const {
  Call c = *this;
  c.record.completed_ns.reset();
  return c;
}
Call Call::inside() const {
  Call c = pending();
  c.record.returned_ns.reset();
  return c;
}
Call Call::failed() const {
  Call c = *this;
  c.record.failed = true;
  return c;
}
Call Call::overlapped() const {
  Call c = *this;
  c.record.overlapped = true;
  return c;
}
Call Call::unseen() const {
  Call c = pending();
  c.record.completion_unseen = true;
  return c;
}
Call Call::with(DType dtype) const {
  Call c = *this;
  c.record.dtype = dtype;
  return c;
}
Call Call::with(ReduceOp reduce_op) const {
  Call c = *this;
  c.record.reduce_op = reduce_op;
  return c;
}
Call Call::rooted(std::int32_t root) const {
  Call c = *this;
  c.record.root = root;
  return c;
}
Call Call::sizes(std::uint64_t in, std::uint64_t out) const {
  Call c = *this;
  c.record.numel_in = in;
  c.record.numel_out = out;
  return c;
}
Call Call::on_thread(std::uint32_t thread) const {
  Call c = *this;
  c.record.thread = thread;
  return c;
}
Call Call::limited(std::int64_t timeout_ms) const {
  Call c = *this;
  c.record.timeout_ms = timeout_ms;
  return c;
}

Call call(Op op, const std::string& group, std::uint64_t in, std::uint64_t out) {
  Call c;
  c.group = group;
  c.record.op = op;
  c.record.dtype = DType::kFloat32;
  c.record.numel_in = in;
  c.record.numel_out = out;
  c.record.counts_hash = in;
  c.record.returned_ns = 1 * kMs;  // After the issue; made absolute by make_run.
  c.record.completed_ns = 2 * kMs;
  return c;
}
Call all_reduce(const std::string& group, std::uint64_t numel) {
  return call(Op::kAllReduce, group, numel, numel).with(ReduceOp::kSum);
}
Call broadcast(const std::string& group, std::uint64_t numel, std::int32_t root) {
  return call(Op::kBroadcast, group, numel, numel).rooted(root);
}
Call barrier(const std::string& group) {
  return call(Op::kBarrier, group, 0, 0).with(DType::kNone);
}
Call all_gather(const std::string& group, std::uint64_t in, std::uint64_t out) {
  return call(Op::kAllGather, group, in, out);
}
Call send(const std::string& group, std::int32_t to, std::uint64_t numel, std::int32_t tag) {
  Call c = call(Op::kSend, group, numel, 0).rooted(to).unseen();
  c.record.tag = tag;
  return c;
}
Call recv(const std::string& group, std::int32_t from, std::uint64_t numel, std::int32_t tag) {
  Call c = call(Op::kRecv, group, 0, numel).rooted(from).unseen();
  c.record.tag = tag;
  return c;
}
Call recv_any(const std::string& group, std::uint64_t numel, std::int32_t tag) {
  Call c = call(Op::kRecvAny, group, 0, numel).unseen();
  c.record.tag = tag;
  return c;
}

Row times(std::size_t count, const Row& row) {
  Row all;
  for (std::size_t i = 0; i < count; ++i)
    all.insert(all.end(), row.begin(), row.end());
  return all;
}
Row operator+(Row a, const Row& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Run make_run(const std::vector<Row>& rows) {
  Run run;
  const auto world = static_cast<std::int32_t>(rows.size());
  run.plan.id = "typed";
  run.plan.world_size = world;
  run.journal_complete = true;
  std::vector<std::string> names;  // Every rank is a member of every group.
  for (const Row& row : rows) {
    for (const Call& c : row) {
      if (std::find(names.begin(), names.end(), c.group) == names.end())
        names.push_back(c.group);
    }
  }
  for (std::int32_t rank = 0; rank < world; ++rank) {
    Process process;
    process.file = fmt::format("typed-{}.lsh", rank);
    process.host = "a";
    process.pid = 1000 + rank;
    process.rank = Rank{rank};
    process.world_size = world;
    process.opened_ns = kStart / 2;
    process.sites.push_back({});
    process.closed = true;
    process.groups.reserve(names.size());
    for (const std::string& name : names)
      group_of(process, name, world);
    std::map<std::tuple<std::uint32_t, Op, std::int32_t, std::int32_t>, std::uint64_t> messages;
    for (const Call& c : rows[static_cast<std::size_t>(rank)]) {
      Collective record = c.record;
      record.record = process.collectives.size();
      record.group = group_of(process, c.group, world);
      Group& group = process.groups[record.group];
      if (history::is_point_to_point(record.op))
        record.seq = messages[{record.group, record.op, record.root, record.tag}]++;
      else
        record.seq = group.issued;
      if (history::is_point_to_point(record.op))
        ++group.p2p_issued;
      else
        add_to_digest(group, record);
      if (record.thread == 0)
        record.thread = static_cast<std::uint32_t>(process.pid);
      record.site = site_of(process, c);
      record.issued_ns = kStart + record.record * kEvery + static_cast<std::uint64_t>(rank) * 1000;
      if (record.returned_ns)
        *record.returned_ns += record.issued_ns;
      if (record.completed_ns)
        *record.completed_ns += record.issued_ns;
      process.collectives.push_back(record);
    }
    run.processes.push_back(std::move(process));
    run.starts.push_back({0, kStart / 4, Role::kRank, Rank{rank}, 1000 + rank});
  }
  for (std::int32_t rank = 0; rank < world; ++rank) {
    ProcessEnd end;
    end.at_ns = last_event(run) + 1000 * kMs;
    end.role = Role::kRank;
    end.rank = Rank{rank};
    end.pid = 1000 + rank;
    end.exit_status = 0;
    run.ends.push_back(end);
  }
  return run;
}

void set_members(Run& run, const std::string& name, const std::vector<Rank>& ranks) {
  for (Process& process : run.processes) {
    const auto place = std::find(ranks.begin(), ranks.end(), *process.rank);
    for (Group& group : process.groups) {
      if (group.name != name)
        continue;
      if (place == ranks.end()) {
        group.name = "unused";
        group.size = 1;
        group.my_rank = 0;
        group.ranks = {*process.rank};
        continue;
      }
      group.size = static_cast<std::int32_t>(ranks.size());
      group.my_rank = static_cast<std::int32_t>(place - ranks.begin());
      group.ranks = ranks;
    }
  }
}

Request& ask(Run& run, Rank rank, const std::string& message, std::uint64_t at_ns,
             std::optional<std::uint64_t> answered_ns) {
  Request request;
  request.at_ns = at_ns;
  request.role = Role::kRank;
  request.rank = rank;
  request.id = run.requests.size() + 1;
  request.message = message;
  request.answered_ns = answered_ns;
  request.outcome = answered_ns ? "ok" : "";
  run.requests.push_back(request);
  return run.requests.back();
}

void converse(Run& run) {
  for (const Rank rank : RankSet::all(run.plan.world_size)) {
    ask(run, rank, "hello", kStart / 3, kStart / 2);
    const std::uint64_t end = last_event(run);
    ask(run, rank, "bye", end + 10 * kMs, end + 20 * kMs);
  }
}

void observe(Run& run, std::optional<Rank> rank, const std::string& name, std::int64_t step,
             const std::string& phase, const std::vector<double>& values,
             const std::string& variant, Role role, const std::string& dtype,
             std::vector<std::int64_t> shape) {
  Observation seen;
  seen.record = run.observations.size();
  seen.at_ns = kStart + run.observations.size() * kMs;
  seen.role = role;
  seen.rank = rank;
  seen.name = name;
  seen.step = step;
  seen.phase = phase;
  seen.variant = variant;
  seen.dtype = dtype;
  seen.shape = shape.empty() ? std::vector<std::int64_t>{static_cast<std::int64_t>(values.size())}
                             : std::move(shape);
  seen.digest = fmt::format("{:.17g}", fmt::join(values, ","));
  seen.file = fmt::format("tensor-{}", run.observations.size());
  run.observations.push_back(seen);
  auto previous = run.tensor;
  run.tensor = [previous, file = seen.file, tensor = Tensor{seen.dtype, seen.shape, values}](
                   const Observation& wanted) -> Result<Tensor> {
    if (wanted.file == file)
      return tensor;
    if (previous)
      return previous(wanted);
    return Error{Error::Kind::kMalformedHistory, "no such tensor", ""};
  };
}

void reference(Run& run, const std::string& name, std::int64_t step,
               const std::vector<double>& values, const std::string& variant,
               std::optional<Rank> rank, const std::string& dtype) {
  observe(run, rank, name, step, "after_backward", values, variant, Role::kReference, dtype);
}

}  // namespace lockstep::testing
