#include "harness/model/stack_patterns.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// "libtorch_cpu.so".
std::string_view object_of(const Frame& frame) {
  return std::string_view(frame.module).substr(frame.module.rfind('/') + 1);
}

/// In the C or C++ library. (What others call a function of theirs, wait_for_all, says nothing.)
bool is_timed(const Frame& frame) {
  const std::string_view function = frame.function;
  return !frame.is_python() &&
         (has(function, "timedwait") || has(function, "clockwait") || has(function, "nanosleep") ||
          (has(function, "std::") && (has(function, "wait_for") || has(function, "wait_until"))));
}

bool passes(const StackSample& stack, std::string_view function) {
  return std::any_of(stack.frames.begin(), stack.frames.end(),
                     [&](const Frame& frame) { return has(frame.function, function); });
}

bool calls_backward(const StackSample& stack) {
  return passes(stack, "torch::autograd::Engine::execute(");
}

/// LibTorch's innermost frame is of one of these functions, and waits without a limit there.
bool sleeps_in(const StackSample& stack, std::initializer_list<std::string_view> functions) {
  bool waits = false;
  for (const Frame& frame : stack.frames) {
    if (is_timed(frame))
      return false;
    waits |= has(frame.function, "cond_wait");
    if (object_of(frame).substr(0, 8) == "libtorch" || object_of(frame).substr(0, 6) == "libc10")
      return waits && std::any_of(functions.begin(), functions.end(),
                                  [&](std::string_view name) { return has(frame.function, name); });
  }
  return false;
}

bool is_in_distributed(const Frame& frame) {
  return has(frame.module, "/torch/distributed/distributed_c10d.py");
}

}  // namespace

bool is_python(const Frame& frame) {
  const std::string_view object = object_of(frame);
  return frame.is_python() || has(frame.file, ".py") || has(frame.function, "_PyEval") ||
         object.substr(0, 6) == "python" || object.substr(0, 9) == "libpython";
}

bool is_known_helper(const StackSample& stack) {
  constexpr std::array<std::string_view, 6> kHelpers{
      "_pin_memory_loop",  // torch.utils.data
      "Queue._feed",       // multiprocessing
      "_ResourceSharer._serve",
      "QueueListener._monitor",      // logging
      "TMonitor.run",                // tqdm
      "_ChildProcessObserver.run"};  // lightning: ends the job when a rank has failed
  // They compile, or tell others how a program is doing.
  constexpr std::array<std::string_view, 9> kPackages{
      "clearml",      "comet_ml",   "mlflow",
      "neptune",      "sentry_sdk", "tensorboard",
      "tensorboardX", "wandb",      "torch/_inductor/compile_worker"};
  const auto is_helper = [&](const Frame& frame) {
    return std::find(kHelpers.begin(), kHelpers.end(), frame.function) != kHelpers.end();
  };
  if (std::any_of(stack.frames.begin(), stack.frames.end(), is_helper))
    return true;
  const auto runs = std::find_if(stack.frames.rbegin(), stack.frames.rend(), [](const Frame& f) {
    return f.is_python() && !has(f.module, "/threading.py");
  });
  return runs != stack.frames.rend() &&
         std::any_of(kPackages.begin(), kPackages.end(), [&](std::string_view name) {
           return has(runs->module, "-packages/" + std::string(name) + "/");
         });
}

bool in_untimed_lock(const StackSample& stack) {
  bool waits = false;
  for (const Frame& frame : stack.frames) {
    if (is_timed(frame))
      return false;
    waits |= !frame.is_python() &&
             (has(frame.function, "cond_wait") || has(frame.function, "sem_wait") ||
              has(frame.function, "mutex_lock") || has(frame.function, "pthread_join"));
  }
  return waits;
}

bool joins_a_thread(const StackSample& stack) {
  const auto frame = std::find_if(stack.frames.begin(), stack.frames.end(),
                                  [](const Frame& each) { return each.is_python(); });
  return frame != stack.frames.end() && has(frame->module, "/threading.py") &&
         (frame->function == "Thread.join" || frame->function == "Thread._wait_for_tstate_lock");
}

bool awaits_message(const StackSample& stack, history::Op op) {
  const std::string_view wait = op == history::Op::kSend ? "SendWork::wait" : "RecvWork::wait";
  return history::is_point_to_point(op) &&
         std::any_of(stack.frames.begin(), stack.frames.end(),
                     [&](const Frame& frame) { return has(frame.function, wait); });
}

bool blocks_by_name(const StackSample& stack) {
  return std::any_of(stack.frames.begin(), stack.frames.end(), [](const Frame& frame) {
    return is_in_distributed(frame) && (frame.function == "send" || frame.function == "recv");
  });
}

bool is_of_libtorch(const StackSample& stack) {
  constexpr std::array<std::string_view, 5> kOthers{"libc10.so", "libstdc++.so", "libc.so",
                                                    "libpthread.so", "libm.so"};
  bool torch = false;
  for (const Frame& frame : stack.frames) {
    const std::string_view object = object_of(frame);
    const bool ours = object.substr(0, 12) == "libtorch_cpu";
    if (!ours && std::none_of(kOthers.begin(), kOthers.end(), [&](std::string_view other) {
          return object.substr(0, other.size()) == other;
        }))
      return false;
    torch |= ours;
  }
  return torch;
}

bool is_idle_in_autograd(const StackSample& stack) {
  return sleeps_in(stack, {"torch::autograd::Engine::thread_main(",
                           "torch::autograd::Engine::thread_init(",
                           "torch::autograd::Engine::reentrant_thread_init(",
                           "torch::autograd::ReadyQueue::pop("}) &&
         !calls_backward(stack);
}

bool works_for_backward(const StackSample& stack) {
  return passes(stack, "torch::autograd::Engine::thread_main(") && !calls_backward(stack);
}

bool awaits_autograd(const StackSample& stack) {
  return calls_backward(stack) &&
         sleeps_in(stack, {"c10::ivalue::Future::wait(", "torch::autograd::Engine::thread_main(",
                           "torch::autograd::ReadyQueue::pop("});
}

bool is_for_tasks(const StackSample& stack) {
  return std::any_of(stack.frames.begin(), stack.frames.end(),
                     [](const Frame& frame) { return has(frame.function, "c10::ThreadPool"); });
}

bool awaits_store(const StackSample& stack) {
  return std::any_of(stack.frames.begin(), stack.frames.end(), [](const Frame& frame) {
    return has(frame.function, "c10d::") && has(frame.function, "Store::");
  });
}

bool is_in_new_group(const StackSample& stack) {
  bool makes = false, waits = false;
  for (const Frame& frame : stack.frames) {
    makes |= frame.function == "new_group" && is_in_distributed(frame);
    waits |= has(frame.function, "c10d::") && has(frame.function, "Store::wait");
  }
  return makes && waits;
}

bool in_data_loader(const std::vector<Frame>& frames) {
  return std::any_of(frames.begin(), frames.end(), [](const Frame& frame) {
    return has(frame.file, "/torch/utils/data/dataloader.py");
  });
}

bool waits_for_a_task(const StackSample& stack) {
  for (const Frame& frame : stack.frames) {
    if (has(frame.function, "_process_worker") ||
        (frame.function == "worker" && has(frame.file, "/multiprocessing/pool.py")))
      return true;
    if (frame.is_python() && !has(frame.file, "/multiprocessing/"))
      return false;
  }
  return false;
}

bool awaits_device(const StackSample& stack) {
  return std::any_of(stack.frames.begin(), stack.frames.end(), [](const Frame& frame) {
    const std::string_view function = frame.function;
    if (frame.is_python())
      return has(function, "synchronize") && has(frame.module, "/torch/cuda/");
    // Of the runtime and the driver of CUDA and of HIP: cudaStreamSynchronize, cuCtxSynchronize.
    return (function.substr(0, 2) == "cu" || function.substr(0, 3) == "hip") &&
           has(function, "Synchronize");
  });
}

bool in_collective_wait(const StackSample& stack) {
  bool waits = false;
  bool sleeps = false;
  bool in_reducer = false;
  bool in_c10d = false;
  bool future = false;
  for (const Frame& frame : stack.frames) {
    const std::string_view function = frame.function;
    if (is_timed(frame) || (has(function, "Store") && has(function, "c10d::")))
      return false;
    sleeps |= has(function, "cond_wait") || has(function, "futex");
    future |= has(function, "ivalue::Future::wait");
    in_c10d |= has(function, "c10d::");
    in_reducer |= has(function, "c10d::Reducer::finalize_backward");
    waits |= has(function, "c10d::") && has(function, "Work") &&
             (has(function, "::wait") || has(function, "::synchronize"));
    waits |= has(function, "c10d::") && has(function, "::monitoredBarrier");
  }
  return waits || (future && in_c10d) || (in_reducer && sleeps);
}

std::uint64_t lasted_ns(const Run& run, const StackSample& last,
                        const std::function<bool(const StackSample&)>& is_so) {
  std::uint64_t since_ns = last.at_ns;
  for (const StackSample& stack : run.stacks) {
    if (stack.pid == last.pid && stack.tid == last.tid && stack.at_ns <= last.at_ns)
      since_ns = is_so(stack) ? std::min(since_ns, stack.at_ns) : last.at_ns;
  }
  return last.at_ns - since_ns;
}

}  // namespace lockstep
