#include <array>
#include <cerrno>
#include <map>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/data/prepare_outputs_impl.h"
#include "lethe/io/file_facts.h"

namespace lethe::detail {
namespace {

constexpr std::array<const char*, 6> kFinalEndings{
    ".idx", ".bin", ".mask.idx", ".mask.bin", ".json", ".tokenizer.json"};
constexpr std::array<const char*, 3> kOtherEndings{".lengths.part", ".progress", ".lock"};

// Every file that a preparation may write, as far as it exists.
std::map<FileId, std::string> existing_outputs(const std::string& name) {
  std::map<FileId, std::string> found;
  const auto look_at = [&](const std::string& path) {
    if (const auto facts = file_facts(path)) found.emplace(facts->id, path);
  };
  for (const char* ending : kFinalEndings) {
    look_at(name + ending);
    look_at(name + ending + ".part");
  }
  for (const char* ending : kOtherEndings) look_at(name + ending);
  return found;
}

}  // namespace

OutputLock::OutputLock(const std::string& name) : path_(name + ".lock") {
  for (;;) {
    file_ = std::make_unique<File>(path_, O_RDWR | O_CREAT, "open the lock file");
    if (::flock(file_->fd(), LOCK_EX | LOCK_NB) != 0) {
      LETHE_CHECK(DataError,
                  errno != EWOULDBLOCK,
                  "{}: must be locked by one preparation at a time, got another one at work; wait "
                  "for its end, or choose another --output-prefix",
                  path_);
      if (errno != EINTR) fail_errno(path_, "lock the file", errno);
      continue;
    }

    // The one before may have removed the file between open() and flock().
    struct stat status {};

    if (::fstat(file_->fd(), &status) != 0) fail_errno(path_, "look at the file", errno);
    const auto facts = file_facts(path_);
    if (facts && facts->id == FileId{status.st_dev, status.st_ino}) return;
  }
}

OutputLock::~OutputLock() {
  ::unlink(path_.c_str());  // while it is locked: nobody else relies on it
}

void check_inputs_stay(const PrepareSettings& s, std::span<const Source> sources) {
  const auto outputs = existing_outputs(s.output);
  const auto check = [&](const char* what, const std::string& path, const FileId& id) {
    const auto found = outputs.find(id);
    LETHE_CHECK(ConfigError,
                found == outputs.end(),
                "data prepare: {} must be none of the files that it writes, got '{}', which is "
                "'{}'; choose another --output-prefix",
                what,
                path,
                found->second);
  };
  for (const Source& source : sources) check("an input", source.path, source.id);
  if (const auto facts = file_facts(s.tokenizer); facts && s.tokenizer != "bytes")
    check("the tokenizer", s.tokenizer, facts->id);
}

void check_free(const PrepareSettings& s) {
  if (s.overwrite) return;
  for (const char* ending : kFinalEndings)
    LETHE_CHECK(DataError,
                !file_exists(s.output + ending),
                "{}{}: must not exist yet, got a file; choose another --output-prefix, or replace "
                "it with --overwrite",
                s.output,
                ending);
}

}  // namespace lethe::detail
