#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "lethe/plan/make_plan.h"

// The words of a plan file. Not installed.
namespace lethe::detail {

inline constexpr std::string_view kPlanFormat = "lethe-recompute-plan";
inline constexpr int64_t kPlanVersion = 1;

template <class E, size_t N>
using Words = std::array<std::pair<E, std::string_view>, N>;

inline constexpr Words<Keep, 4> kKeepWords{
    {{Keep::Keep, "keep"}, {Keep::Release, "release"}, {Keep::Full, "full"}, {Keep::Swap, "swap"}}};
inline constexpr Words<Trigger::Kind, 3> kTriggerWords{{{Trigger::Kind::Pull, "pull"},
                                                        {Trigger::Kind::OnGradOf, "on_grad_of"},
                                                        {Trigger::Kind::Explicit, "explicit"}}};
inline constexpr Words<ReplayStop, 3> kStopWords{
    {{ReplayStop::On, "on"},
     {ReplayStop::Off, "off"},
     {ReplayStop::AfterLastCollective, "after_last_collective"}}};
inline constexpr Words<RecomputeMode, 2> kModeWords{
    {{RecomputeMode::Engine, "engine"}, {RecomputeMode::Reentrant, "reentrant"}}};
inline constexpr Words<PlanChecks, 3> kCheckWords{
    {{PlanChecks::Off, "off"}, {PlanChecks::Checked, "checked"}, {PlanChecks::Bitwise, "bitwise"}}};
inline constexpr Words<MtpSelection, 2> kMtpWords{
    {{MtpSelection::Include, "include"}, {MtpSelection::Skip, "skip"}}};

template <class E, size_t N>
std::string_view word_of(const Words<E, N>& words, E value) {
  return words[static_cast<size_t>(value)].second;
}

/// What a plan depends on, under the names of a hub config.json; the pipeline under its flags.
nlohmann::ordered_json model_fingerprint(const PlanSubject& subject);

}  // namespace lethe::detail
