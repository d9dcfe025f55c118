// What the stack of a thread says that it waits for, and where in the kernel it sleeps. The names
// of functions, sources and wait channels are rows (stack_patterns.inc, wait_channels.inc).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "harness/history/run.h"

namespace lockstep {

/// What a frame may be a sign of; the rows of stack_patterns.inc say of which.
enum class Sign : std::uint8_t {
  kTimedWait,
  kConditionWait,
  kFutex,
  kLock,
  kOfPython,
  kModule,
  kImport,
  kFinalizes,
  kRunsExitHandlers,
  kThreading,
  kJoinsAThread,
  kThreadOfPython,
  kThreadBootstrap,
  kWaitsForThreadsAtExit,
  kThreadPoolWorker,
  kThreadPoolAtExit,
  kProcessPoolAtExit,
  kEventLoop,
  kExecutorShutdown,
  kQueueAtExit,
  kMultiprocessingAtExit,
  kMultiprocessingJoin,
  kMultiprocessing,
  kPoolWorker,
  kPackage,
  kHelper,
  kHelperPackage,
  kOfLibTorch,
  kOfTorchCpu,
  kUnderTorch,
  kDistributed,
  kInitProcessGroup,
  kNewGroup,
  kBlockingMessage,
  kC10d,
  kTransport,
  kStore,
  kStoreCall,
  kStoreWait,
  kWorkWait,
  kSendWait,
  kRecvWait,
  kReducerEnd,
  kFutureWait,
  kGlooLoop,
  kTaskPool,
  kBackward,
  kAutogradThread,
  kAutogradIdle,
  kAutogradWait,
  kBackwardOfPython,
  kDataLoader,
  kDeviceSync,
  kAbort,
  kThrow,
  kTerminate,
  kThreadExit,
  kThreadJoin,
  kOfLibrary,
  kLibraryFunction,
};

bool is(const Frame& frame, Sign sign);
bool any(const std::vector<Frame>& frames, Sign sign);

/// For what a thread sleeps in the kernel. A futex may be any wait of its process.
enum class KernelWait : std::uint8_t {
  kNone,
  kFutex,
  kTimer,
  kPipe,
  kEpoll,
  kPoll,
  kChild,
  kFileLock,
  kTerminal,
};

KernelWait kernel_wait(std::string_view channel);

/// Of a Python source, or of the interpreter that runs one.
bool is_python(const Frame& frame);

/// A thread of a library that runs Python and never issues a collective.
bool is_known_helper(const StackSample& stack);

/// Waits for another thread of its process, without a limit.
bool in_untimed_lock(const StackSample& stack);

/// In Thread.join of Python's threading: what ends it is the end of a thread of Python's.
bool joins_a_thread(const StackSample& stack);

/// Inside the wait for a message that is sent (Op::kSend), or that is received.
bool awaits_message(const StackSample& stack, history::Op op);

/// In a send or receive of Python's that was called by its blocking name: it waits for no other.
bool blocks_by_name(const StackSample& stack);

/// Of a thread of LibTorch's that runs nothing of the program (Gloo's, which serves connections).
bool is_of_libtorch(const StackSample& stack);

/// A thread of autograd's (each GPU has one) that has nothing to do until another calls backward().
bool is_idle_in_autograd(const StackSample& stack);

/// Executes a backward() that another thread has called.
bool works_for_backward(const StackSample& stack);

/// In backward(), until the threads of autograd have done it.
bool awaits_autograd(const StackSample& stack);

/// Of a pool whose tasks may be of any kind (those that come by RPC are functions of the program).
bool is_for_tasks(const StackSample& stack);

/// It makes a group, and waits in the store until others have come to that, too.
bool is_in_new_group(const StackSample& stack);

/// For a key that somebody is to set, or for the process that has the store.
bool awaits_store(const StackSample& stack);

/// In the code of torch.utils.data's loader, which fetches a batch.
bool in_data_loader(const std::vector<Frame>& frames);

/// A worker of a pool of processes (concurrent.futures, multiprocessing) that has no task: whatever
/// of the program it was in has returned, or raised.
bool waits_for_a_task(const StackSample& stack);

/// Until a GPU has done what was put on it, collectives of other ranks among it.
bool awaits_device(const StackSample& stack);

/// In a c10d wait without a limit of its own (a store wait is none).
bool in_collective_wait(const StackSample& stack);

/// For how long the thread of this sample has been seen so whenever it was looked at; 0 if it is
/// not.
std::uint64_t lasted_ns(const Run& run, const StackSample& last,
                        const std::function<bool(const StackSample&)>& is_so);

}  // namespace lockstep
