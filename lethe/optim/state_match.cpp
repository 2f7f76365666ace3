#include <algorithm>
#include <string>
#include <unordered_map>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/optim/state_match_impl.h"

namespace lethe {
namespace {

constexpr size_t kNamed = 8;  // the rest is only counted

class Problems {
 public:
  void add(std::string text) {
    if (++count_ <= kNamed) text_ += (text_.empty() ? "" : ", ") + std::move(text);
  }

  void fail_if_any() const {
    LETHE_CHECK(CheckpointError,
                count_ == 0,
                "optimizer state: it must be that of this optimizer, got {} difference(s): {}{}; "
                "resume with the optimizer, the trained parameters and the weight type of the "
                "checkpoint",
                count_,
                text_,
                count_ > kNamed ? ", ..." : "");
  }

 private:
  size_t count_ = 0;
  std::string text_;
};

// Positions in `own` of what was given, by name; every name of `own` once.
class Wanted {
 public:
  Wanted(std::vector<std::string> names, Problems& problems)
      : names_(std::move(names)), given_(names_.size()), problems_(problems) {
    for (size_t i = 0; i < names_.size(); ++i) index_.emplace(names_[i], i);
  }

  // -1: a problem.
  std::ptrdiff_t take(const std::string& name) {
    const auto found = index_.find(name);
    if (found == index_.end()) {
      problems_.add(fmt::format("{} is not wanted", name));
      return -1;
    }
    if (given_[found->second]) {
      problems_.add(fmt::format("{} is there twice", name));
      return -1;
    }
    given_[found->second] = true;
    return static_cast<std::ptrdiff_t>(found->second);
  }

  void report_missing() {
    for (size_t i = 0; i < names_.size(); ++i)
      if (!given_[i]) problems_.add(fmt::format("{} is missing", names_[i]));
  }

 private:
  std::vector<std::string> names_;
  std::vector<bool> given_;
  Problems& problems_;
  std::unordered_map<std::string, size_t> index_;
};

std::string name_of(const StateTensor& t) {
  return fmt::format("{} of '{}'", t.kind, t.parameter);
}

std::string name_of(const UpdateCount& c) {
  return fmt::format("the update count of '{}'", c.parameter);
}

template <class T>
std::vector<std::string> names_of(const std::vector<T>& items) {
  std::vector<std::string> names;
  for (const T& item : items) names.push_back(name_of(item));
  return names;
}

std::string type_of(const at::Tensor& t) {
  return t.defined() ? dtype_text(t) + " " + shape_text(t) : "nothing";
}

}  // namespace

Tensors match_state(const std::vector<StateTensor>& own, const std::vector<StateTensor>& given) {
  Problems problems;
  Wanted wanted(names_of(own), problems);
  Tensors out(own.size());
  for (const StateTensor& one : given) {
    const std::ptrdiff_t i = wanted.take(name_of(one));
    if (i < 0) continue;
    const at::Tensor& mine = own[static_cast<size_t>(i)].value;
    if (type_of(one.value) != type_of(mine))
      problems.add(
          fmt::format("{} is {} instead of {}", name_of(one), type_of(one.value), type_of(mine)));
    out[static_cast<size_t>(i)] = one.value;
  }
  wanted.report_missing();
  problems.fail_if_any();
  return out;
}

std::vector<int64_t> match_counts(const std::vector<UpdateCount>& own,
                                  const std::vector<UpdateCount>& given) {
  Problems problems;
  Wanted wanted(names_of(own), problems);
  std::vector<int64_t> out(own.size());
  for (const UpdateCount& one : given) {
    const std::ptrdiff_t i = wanted.take(name_of(one));
    if (i < 0) continue;
    if (one.updates < 0) problems.add(fmt::format("{} is {}", name_of(one), one.updates));
    out[static_cast<size_t>(i)] = one.updates;
  }
  wanted.report_missing();
  problems.fail_if_any();
  return out;
}

}  // namespace lethe
