"""Bugs that passed the suite once: each is an edit that an author could make. (name, file, what reads so, what it becomes).

A bug of several edits has several rows under one name. An empty text deletes a statement.
"""

BUGS = [
    ("buffers_not_broadcast_at_construction", "replicated_module",
     "state.options.broadcast_initial_buffers.value_or(state.options.broadcast_buffers)", "false"),
    ("used_parameters_never_cleared", "bucket_reducer", "used_.zero_();", ""),
    ("unused_parameter_gets_zero", "bucket_reducer", "!used_anywhere(index)", "false"),
    ("parameters_compared_with_nothing", "verify_parameters", "rank < all.size()", "false"),
    ("parameters_compared_by_number_alone", "verify_parameters", "expected[i] == found[i]", "true"),
    ("parameters_compared_but_not_their_number", "verify_parameters", "expected.size() == found.size()", "true"),
    ("unfinished_reduction_accepted", "bucket_reducer", "!unfinished_", "true"),
    ("statistics_in_half_precision", "sync_batch_norm", "tensor.to(at::toOpMathType(tensor.scalar_type()))", "tensor"),
    ("bucket_drop_last_keeps_incomplete_batches", "bucket_sampler",
     "truncated(std::move(bucket), share_.world * options_.batch_size)",
     "truncated(std::move(bucket), share_.world)"),
    ("bucket_drop_last_keeps_incomplete_batches", "bucket_sampler", "items / (share_.world * options_.batch_size)",
     "ceil_div(items / share_.world, options_.batch_size)"),
    ("joined_state_of_the_largest_rank", "replicated_module", "largest_rank(group(), join_device(), last)",
     "largest_rank(group(), join_device(), true)"),
    ("repeats_a_permutation_later", "samplers", "return repeated;",
     "Indices apart; for (std::int64_t i = 0; i < repeats_; ++i) "
     "for (const std::int64_t index : Shuffle(seed_of(seed_, epoch)).permutation(length())) apart.push_back(index); "
     "return apart;"),
    ("replaced_buffer_lost", "data_parallel", "own[i].tensor.copy_(kept[i].tensor);", ""),
    ("only_first_replicas_exception", "parallel_apply", "replica < errors_.size()", "replica < 1"),
    ("infinite_stream_per_rank", "samplers", "stream_ = Shuffle(seed_of(seed_, epoch));",
     "stream_ = Shuffle(seed_of(seed_ + static_cast<std::uint64_t>(share_.rank) * 1000, epoch));"),
    ("sequential_shard_strided", "samplers", "return {first, first + each};", "return strided(fitted, share());"),
    ("shuffle_off_shuffles", "samplers",
     "options_.shuffle ? Shuffle(seed_of(options_.seed, epoch)).permutation(length()) : in_order(length())",
     "Shuffle(seed_of(options_.seed, epoch)).permutation(length())"),
    ("bucket_shuffle_off_shuffles", "bucket_sampler", "options_.shuffle ? shuffle.permutation(batches) : in_order(batches)",
     "shuffle.permutation(batches)"),
    ("ignored_is_synchronised", "replicated_module",
     "std::find(ignored.begin(), ignored.end(), item.name) == ignored.end()", "true"),
    ("converted_norm_always_trains", "sync_batch_norm_module", "is_training()", "true"),
    ("evaluation_without_running_values", "sync_batch_norm",
     "at::batch_norm(input, state.weight, state.bias, state.running_mean, state.running_var,"
     " /*training=*/!state.running_mean.defined(), /*momentum=*/0, state.eps,"
     " at::globalContext().userEnabledCuDNN())",
     "at::batch_norm(input, state.weight, state.bias, state.running_mean.defined() ? state.running_mean"
     " : at::zeros({input.size(1)}, input.options()), state.running_mean.defined() ? state.running_var"
     " : at::ones({input.size(1)}, input.options()), false, 0, state.eps,"
     " at::globalContext().userEnabledCuDNN())"),
    ("empty_batch_moves_running_values", "sync_batch_norm", "share = share * moments.count.clamp_max(1);", ""),
    ("backward_memory_to_replica_0", "rank_host/replica_memory", "known == replica_of_.end() ? 0 : known->second", "0"),
    ("hooks_stay_after_the_end", "bucket_reducer", "hook.accumulator->del_post_hook(hook.key);", ""),
    ("points_all_fake", "gradient_penalty", "share * real + (1 - share) * fake", "fake + 0 * share * real"),
    ("points_not_perturbed", "gradient_penalty", "real + 0.5 * real.std() * noise", "real + 0 * noise"),
]
