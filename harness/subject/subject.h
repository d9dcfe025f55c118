// What a shared library offers to `lockstep suite --subject ./libmine.so`: data parallelism of its
// own, made by functions that one entry point names. Terms are those of LibTorch and of
// torch.nn.parallel.DistributedDataParallel.
//
//   class Mine : public lockstep::DataParallel { ... };
//
//   LOCKSTEP_SUBJECT(subject) {
//     subject.name = "mine::Mine";
//     subject.contract.broadcasts_at_construction = true;
//     subject.data_parallel = [](auto module, auto group, const auto&) {
//       return std::make_unique<Mine>(module, group);
//     };
//   }
//
// Build it against the LibTorch that lockstep was built with, and with -g: findings then name
// lines. Installed as <lockstep/subject.h>.
#pragma once

#include <torch/data/samplers/distributed.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace lockstep {
inline namespace subject_2 {

/// The module to be trained. Its parameters are named_parameters(), in the same order on all ranks;
/// a tied one comes under each of its names, as LibTorch lists it. A forward may put another tensor
/// in the place of a buffer: named_buffers() has the present ones.
class Module : public torch::nn::Module {
 public:
  /// Shapes: input [rows, ...], result [rows, ...].
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;
};

/// A module that the ranks of a process group train together. An exception of any call is a finding
/// that names its line. Every rank makes the same calls in the same order:
///
///   set_requires_gradient_sync, forward (once or more often), backward of the loss,
///   finish_gradient_synchronization, and then each parameter's grad() is what the contract says.
class DataParallel {
 public:
  DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;
  virtual ~DataParallel() = default;

  /// Shapes: as Module::forward().
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;

  /// After backward, unless gradients are to stay local. Leave it where hooks do everything.
  virtual void finish_gradient_synchronization() {}

  /// False: gradients of the forwards and backwards that follow stay local and accumulate. Called
  /// only where the contract has no_sync.
  virtual void set_requires_gradient_sync(bool /*required*/) {}
};

/// What is promised. What is not promised is not asked, and told as such.
struct Contract {
  /// Of all ranks' gradients of their own loss: "mean_of_rank_means" or "sum".
  std::string gradient{"mean_of_rank_means"};
  bool broadcasts_at_construction{};  ///< All ranks then have the values of rank 0.
  bool no_sync{};                     ///< set_requires_gradient_sync() does what it says.
  /// Construction raises on every rank, with the parameter's name, where their modules differ.
  bool refuses_differing{};
  // Whether it heeds the field of Options that has the same name.
  bool broadcast_buffers{};
  bool find_unused_parameters{};
  bool gradient_as_bucket_view{};
  bool static_graph{};
};

/// Of one case, as DistributedDataParallel has them.
struct Options {
  bool broadcast_buffers{true};  ///< A training forward begins with the buffers of rank 0.
  bool find_unused_parameters{};
  bool gradient_as_bucket_view{};
  bool static_graph{};
  std::optional<std::int64_t> bucket_cap_bytes{};  ///< None: as large as you like.
};

/// One batch normalisation of the model, as torch::nn::BatchNorm2d has it. Undefined tensors: not
/// affine, no running values.
struct BatchNormLayer {
  torch::Tensor weight{}, bias{};               ///< [channels]
  torch::Tensor running_mean{}, running_var{};  ///< [channels], written by a training forward.
  torch::Tensor num_batches_tracked{};          ///< [], int64, counted by a training forward.
  bool training{true};
  std::optional<double> momentum{0.1};  ///< None: running values are means over all batches.
  double eps{1e-5};
};

/// Batch normalisation over the rows of all ranks, in the place of the model's own: one object for
/// all its layers. Every rank makes the same calls in the same order. Gradients of parameters are
/// averaged by the host, after backward.
class BatchNorm {
 public:
  BatchNorm() = default;
  BatchNorm(const BatchNorm&) = delete;
  BatchNorm& operator=(const BatchNorm&) = delete;
  virtual ~BatchNorm() = default;

  /// In training by the statistics of all ranks' rows, else by the running values, or, where there
  /// are none, by those of its own rows. Differentiable: the scalar that is differentiated is the
  /// sum of the ranks' losses. Shapes: input [rows, channels, ...], result the same.
  virtual torch::Tensor forward(const torch::Tensor& input, const BatchNormLayer& layer) = 0;
};

/// What torch.nn.SyncBatchNorm does. False: it is not asked, and told as such.
struct BatchNormContract {
  std::vector<std::int64_t> dimensions{2, 3, 4, 5};  ///< Of the inputs that it takes.
  bool uneven_rows{true};                            ///< Ranks may have different numbers of rows.
  bool unbiased_running{true};  ///< The running variance is divided by rows - 1.
  bool without_affine{true};    ///< It takes a layer without weight and bias.
  bool without_running{true};   ///< It takes a layer without running values.
  bool cumulative{true};        ///< It takes a momentum of none.
};

/// Of one rank's share of a dataset.
struct SamplerOptions {
  std::size_t size{};  ///< Samples in the dataset.
  std::size_t num_replicas{1}, rank{};
  bool shuffle{true};    ///< False is asked only where the contract says so.
  bool drop_last{};      ///< Likewise.
  std::uint64_t seed{};  ///< Equal on all ranks.
};

struct SamplerContract {
  bool shuffle{};    ///< It heeds SamplerOptions::shuffle.
  bool drop_last{};  ///< It heeds SamplerOptions::drop_last.
  bool seed{};       ///< It heeds SamplerOptions::seed.
  /// What the number of ranks does not divide: "pad" repeats samples, "drop" leaves some out,
  /// "keep" lets shares differ by one.
  std::string remainder{"pad"};
};

using Sampler = torch::data::samplers::DistributedSampler<>;

/// What the library has. A maker that is left empty is not served.
struct Subject {
  std::string name{};
  Contract contract{};
  /// Collective. Must not return null.
  std::function<std::unique_ptr<DataParallel>(
      std::shared_ptr<Module>, c10::intrusive_ptr<c10d::ProcessGroup>, const Options&)>
      data_parallel{};
  BatchNormContract batch_norm_contract{};
  /// Must not return null.
  std::function<std::unique_ptr<BatchNorm>(c10::intrusive_ptr<c10d::ProcessGroup>)> batch_norm{};
  SamplerContract sampler_contract{};
  /// Kept over the epochs of one dataset; each begins with set_epoch() and reset().
  std::function<std::unique_ptr<Sampler>(const SamplerOptions&)> sampler{};
};

/// What a library was built from.
struct SubjectSource {
  const char* torch_version{};
  const char* file{};
  int line{};
};

}  // namespace subject_2
}  // namespace lockstep

/// The one entry point of a library; its body fills in `subject`. The number is that of this
/// interface.
#define LOCKSTEP_SUBJECT(subject)                                            \
  extern "C" __attribute__((visibility("default"))) lockstep::SubjectSource  \
  lockstep_subject_source() {                                                \
    return {TORCH_VERSION, __FILE__, __LINE__};                              \
  }                                                                          \
  extern "C" __attribute__((visibility("default"))) void lockstep_subject_2( \
      lockstep::Subject&(subject))
