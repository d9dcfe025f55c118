#include "harness/exports/replay_cut.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/model/matching.h"

namespace lockstep::exports {
namespace {

constexpr std::uint64_t kPeriodMax = 64;
constexpr std::uint64_t kRoundsKept = 4;
constexpr std::uint64_t kCallsKept = 40;
constexpr std::uint64_t kMessagesKept = 12;

/// The first place where not all members made one call from one line that was completed.
std::uint64_t agreed_until(const Job& job, const GroupView& view, std::uint64_t begin) {
  for (std::uint64_t seq = begin;; ++seq) {
    const Member& first = view.members.front();
    const Collective* const one = first.at(seq);
    for (const Member& member : view.members) {
      const Collective* const call = member.at(seq);
      if (one == nullptr || call == nullptr || call->overlapped || call->failed ||
          !call->completed_ns || *call->completed_ns >= job.first_act_ns() || !agree(*one, *call) ||
          member.site_key(*call) != first.site_key(*one))
        return seq;
    }
  }
}

/// After how many calls they come again, as the last ones before `end` show; 0: they do not.
std::uint64_t period_before(const Member& member, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t period = 1; period <= kPeriodMax && begin + 2 * period <= end; ++period) {
    bool equal = true;
    for (std::uint64_t seq = end - period; equal && seq < end; ++seq)
      equal = member.site_key(*member.at(seq)) == member.site_key(*member.at(seq - period)) &&
              agree(*member.at(seq), *member.at(seq - period));
    if (equal)
      return period;
  }
  return 0;
}

std::uint64_t first_kept(const Job& job, const GroupView& view) {
  std::uint64_t begin = 0;
  for (const Member& member : view.members)
    begin = std::max(begin, member.first_seq);
  if (view.members.size() < 2)
    return begin;
  const std::uint64_t end = agreed_until(job, view, begin);
  const std::uint64_t kept =
      std::max(kCallsKept, kRoundsKept * period_before(view.members.front(), begin, end));
  return std::max(begin, end - std::min(end, kept));
}

}  // namespace

Cut::Cut(const Job& job) {
  for (const GroupView& view : job.groups()) {
    first_.push_back(first_kept(job, view));
    labels_.push_back(view.label());
    places_.emplace_back();
    for (const Member& member : view.members)
      places_.back()[member.rank] = member.about().my_rank;
  }
  add_messages(job);
}

Cut::Channel Cut::channel_of(std::size_t view, std::int32_t self, const Collective& call) {
  const bool sends = call.op == history::Op::kSend;
  return {view, sends ? self : call.root, sends ? call.root : self, call.tag};
}

void Cut::add_messages(const Job& job) {
  struct Ends {
    std::map<std::uint64_t, std::uint64_t> sent{}, received{};  // Sizes by sequence number.
  };
  std::map<Channel, Ends> channels;
  for (std::size_t i = 0; i < job.groups().size(); ++i) {
    for (const Member& member : job.groups()[i].members) {
      for (const Collective& call : member.process->collectives) {
        if (call.group != member.group || !history::is_point_to_point(call.op))
          continue;
        Ends& ends = channels[channel_of(i, member.about().my_rank, call)];
        if (call.op == history::Op::kSend)
          ends.sent[call.seq] = call.numel_in;
        else
          ends.received[call.seq] = call.numel_out;
      }
    }
  }
  for (const auto& [channel, ends] : channels) {
    if (ends.sent.empty() || ends.received.empty() || std::get<1>(channel) < 0)
      continue;
    const std::uint64_t begin = std::max(ends.sent.begin()->first, ends.received.begin()->first);
    std::uint64_t seq = begin;
    for (; ends.sent.contains(seq) && ends.received.contains(seq) &&
           ends.sent.at(seq) == ends.received.at(seq);
         ++seq) {
    }
    const std::uint64_t first = std::max(begin, seq - std::min(seq, kMessagesKept));
    first_message_[channel] = first;
    messages_dropped_ += first;
  }
}

bool Cut::drops(std::size_t view, Rank rank, const Collective& call) const {
  if (!history::is_point_to_point(call.op))
    return call.seq < first_[view];
  const auto self = places_[view].find(rank);
  if (self == places_[view].end())
    return false;
  const auto first = first_message_.find(channel_of(view, self->second, call));
  return first != first_message_.end() && call.seq < first->second;
}

std::vector<std::string> Cut::notes() const {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < first_.size(); ++i) {
    if (first_[i] > 0)
      notes.push_back(
          fmt::format("Left out: the first {} calls of group {}, which all its ranks made alike.",
                      first_[i], labels_[i]));
  }
  if (messages_dropped_ > 0)
    notes.push_back(
        fmt::format("Left out: {} messages that were sent and received.", messages_dropped_));
  return notes;
}

}  // namespace lockstep::exports
