#include "lethe/io/event_file.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/atomic_file.h"

namespace lethe {
namespace {

using test::TempFolder;

const std::filesystem::path kGolden = LETHE_GOLDEN_DIR "/tensorboard";

std::function<double()> always(double time) {
  return [time] { return time; };
}

int64_t seconds_in_name(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return std::stoll(name.substr(std::string("events.out.tfevents.").size()));
}

TEST(EventFile, BytesAreThoseOfTheTensorboardPackage) {
  const auto facts = nlohmann::json::parse(read_text_file(kGolden / "values.json"));
  double now = facts["start_time"];
  const TempFolder folder;
  EventFile file(
      folder.path(), [&] { return now; }, facts["first_step"]);
  for (const auto& entry : facts["steps"]) {
    now = entry["wall_time"];
    std::vector<EventScalar> values;
    for (const auto& scalar : entry["scalars"]) values.push_back({scalar[0], scalar[1]});
    file.scalars(entry["step"], values);
  }
  const std::string written = read_text_file(file.path());
  EXPECT_EQ(written, read_text_file(kGolden / "events"));
  EXPECT_GE(facts["steps"].size(), 4u);
}

TEST(EventFile, ANewRunHasNoSessionStartAndAResumedOneHas) {
  const TempFolder folder;
  const EventFile fresh(folder / "fresh", always(1e9), 1);
  const EventFile resumed(folder / "resumed", always(1e9), 2);
  const std::string first = read_text_file(fresh.path());
  EXPECT_EQ(first.size(), 12u + 24u + 4u);
  EXPECT_TRUE(read_text_file(resumed.path()).starts_with(first));
  EXPECT_EQ(read_text_file(resumed.path()).size(), first.size() + 12u + 15u + 4u);
}

TEST(EventFile, TheNameIsTheConventionalOne) {
  const TempFolder folder;
  const EventFile file(folder / "made/on/demand", always(1769860800.75), 1);
  const std::string name = file.path().filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.1769860800.")) << name;
  EXPECT_TRUE(name.ends_with("." + std::to_string(::getpid()) + ".0")) << name;
  EXPECT_EQ(file.path().parent_path(), folder / "made/on/demand");
}

TEST(EventFile, ALaterFileSortsBehindTheEarlierOnesEvenIfTheClockWentBack) {
  const TempFolder folder;
  folder.write("events.out.tfevents.1769860900.other.7.0", "");
  folder.write("notes.txt", "");
  const EventFile second(folder.path(), always(1769860800), 5);
  const EventFile third(folder.path(), always(1769860800), 9);
  const EventFile fourth(folder.path(), always(1769869999), 9);
  EXPECT_EQ(seconds_in_name(second.path()), 1769860901);
  EXPECT_EQ(seconds_in_name(third.path()), 1769860902);
  EXPECT_EQ(seconds_in_name(fourth.path()), 1769869999);
}

TEST(EventFile, EveryRecordIsInTheFileBeforeTheNextOne) {
  const TempFolder folder;
  EventFile file(folder.path(), always(1e9), 1);
  const auto size = [&] { return std::filesystem::file_size(file.path()); };
  const auto before = size();
  const std::vector<EventScalar> values{{"a", 1.0F}};
  file.scalars(1, values);
  EXPECT_EQ(size() - before, 12u + (9 + 2 + 2 + 2 + 3 + 5) + 4u);
  file.flush();
}

TEST(EventFile, AFolderThatCannotBeMadeIsNamed) {
  const TempFolder folder;
  folder.write("file", "x");
  try {
    const EventFile file(folder / "file/events", always(1e9), 1);
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("file/events: cannot make the folder"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lethe
