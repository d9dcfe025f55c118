#include "harness/launch/job_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace lockstep::launch {
namespace {

std::string path_in(const std::string& run_directory) { return run_directory + "/job"; }

Result<void> write_line(const UniqueFd& file, const std::string& line) {
  if (::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()))
    return {};
  return Error{Error::Kind::kIo, fmt::format("cannot write RUN/job: {}", std::strerror(errno)), ""};
}

}  // namespace

Result<UniqueFd> create_job_file(const std::string& run_directory, const std::string& job_id) {
  const std::string path = path_in(run_directory);
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file)
    return Error{Error::Kind::kIo, fmt::format("cannot write {}: {}", path, std::strerror(errno)),
                 "choose another place with --run-dir"};
  // Where nothing can be locked, nobody can lock it later either, and it counts as held.
  (void)::flock(file.get(), LOCK_SH | LOCK_NB);
  if (auto written = write_line(file, fmt::format("job {}\n", job_id)); !written)
    return written.error();
  return file;
}

UniqueFd hold_job_file(const std::string& run_directory) {
  UniqueFd file(::open(path_in(run_directory).c_str(), O_RDONLY | O_CLOEXEC));
  if (file && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0)
    file.reset();
  return file;
}

Result<void> note_survivor(const UniqueFd& job_file, const os::ProcessId& process) {
  return write_line(job_file, fmt::format("survivor {} {}\n", process.pid, process.start_ticks));
}

std::optional<JobFile> read_job_file(const std::string& run_directory) {
  const UniqueFd lock(::open(path_in(run_directory).c_str(), O_RDONLY | O_CLOEXEC));
  std::ifstream text(path_in(run_directory));
  std::string word;
  JobFile job;
  if (!lock || !(text >> word >> job.id) || word != "job")
    return std::nullopt;
  for (os::ProcessId process; text >> word >> process.pid >> process.start_ticks;)
    job.survivors.push_back(process);
  job.held = ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
  return job;
}

}  // namespace lockstep::launch
