// A small data parallelism of one's own: gradients are reduced in flat buckets after backward.

#include <lockstep/subject.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

class MyDDP : public lockstep::DataParallel {
 public:
  MyDDP(std::shared_ptr<lockstep::Module> module, Group group, std::int64_t bucket_cap_bytes)
      : module_(std::move(module)), group_(std::move(group)), bucket_cap_bytes_(bucket_cap_bytes) {
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : module_->parameters())
      broadcast(parameter);
    for (const torch::Tensor& buffer : module_->buffers())
      broadcast(buffer);
  }

  torch::Tensor forward(const torch::Tensor& input) override { return module_->forward(input); }

  void finish_gradient_synchronization() override {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> bucket;
    std::size_t bytes = 0;
    std::vector<const void*> seen;  // A tied parameter comes under each of its names.
    for (const torch::Tensor& parameter : module_->parameters()) {
      const void* const identity = parameter.unsafeGetTensorImpl();
      if (!parameter.grad().defined() ||
          std::find(seen.begin(), seen.end(), identity) != seen.end())
        continue;
      seen.push_back(identity);
      const bool fits = bucket.empty() || bucket.front().dtype() == parameter.grad().dtype();
      if (!fits || bytes >= static_cast<std::size_t>(bucket_cap_bytes_)) {
        average(bucket);
        bucket.clear();
        bytes = 0;
      }
      bucket.push_back(parameter.grad());
      bytes += parameter.grad().nbytes();
    }
    average(bucket);
  }

 private:
  void broadcast(const torch::Tensor& value) {
    std::vector<torch::Tensor> tensors{value.contiguous()};
    group_->broadcast(tensors)->wait();
    value.copy_(tensors.front());
  }

  void average(const std::vector<torch::Tensor>& gradients) {
    if (gradients.empty())
      return;
    std::vector<torch::Tensor> flat;
    for (const torch::Tensor& gradient : gradients)
      flat.push_back(gradient.reshape({-1}));
    std::vector<torch::Tensor> bucket{at::cat(flat)};
    group_->allreduce(bucket)->wait();
    bucket.front().div_(group_->getSize());
    std::int64_t offset = 0;
    for (const torch::Tensor& gradient : gradients) {
      gradient.copy_(bucket.front().narrow(0, offset, gradient.numel()).view_as(gradient));
      offset += gradient.numel();
    }
  }

  std::shared_ptr<lockstep::Module> module_;
  Group group_;
  std::int64_t bucket_cap_bytes_;
};

}  // namespace

LOCKSTEP_SUBJECT(subject) {
  subject.name = "my_ddp.MyDDP";
  subject.contract.broadcasts_at_construction = true;
  subject.data_parallel = [](auto module, auto group, const lockstep::Options& options) {
    return std::make_unique<MyDDP>(module, group, options.bucket_cap_bytes.value_or(25 << 20));
  };
}
