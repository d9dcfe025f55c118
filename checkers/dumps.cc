#include "checkers/dumps.h"

#include "checkers/hang/recorded_waits.h"
#include "checkers/order/collective_order.h"
#include "checkers/run/history_complete.h"

namespace lockstep::checkers {

Judgement judge_dumps(const Run& run) {
  Checkers checkers;
  checkers.push_back(std::make_unique<CollectiveOrder>());
  checkers.push_back(std::make_unique<RecordedWaits>());
  checkers.push_back(std::make_unique<HistoryComplete>());
  return judge(run, checkers);
}

}  // namespace lockstep::checkers
