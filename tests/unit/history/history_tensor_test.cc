// Tensor files: every element type, NaN and infinities included, comes back; what is cut or lies is
// refused.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "harness/history/tensor_file.h"
#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

std::string file_with(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

Result<TensorFile> open_text(const std::string& text) {
  return TensorFile::open(std::make_unique<MemorySource>(std::as_bytes(std::span(text))), "t");
}

TEST(TensorFile, EveryTypeComesBack) {
  const TempDir place;
  const std::string path = place / "t.safetensors";
  const std::vector<double> floats{1.5, -0.0, kInf, -kInf, kNan, 0.0};
  const std::vector<double> integers{1, 0, 127, 3, 2, 100};
  std::vector<TensorData> tensors;
  for (const char* dtype : {"F64", "F32", "F16", "BF16"})
    tensors.push_back(make_tensor(dtype, dtype, {2, 3}, floats));
  for (const char* dtype : {"I64", "I32", "I16", "I8", "U8"})
    tensors.push_back(make_tensor(dtype, dtype, {6}, integers));
  tensors.push_back(make_tensor("BOOL", "BOOL", {2}, std::vector<double>{0, 3}));
  tensors.push_back(make_tensor("scalar", "F64", {}, std::vector<double>{7}));
  tensors.push_back(make_tensor("empty", "F32", {0, 4}, {}));
  ASSERT_TRUE(write_tensors(path, tensors));
  auto file = TensorFile::open(path);
  ASSERT_TRUE(file) << file.error().what;
  ASSERT_EQ(file->entries().size(), tensors.size());
  for (const TensorData& tensor : tensors) {
    const TensorEntry* const entry = file->find(tensor.name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->digest, digest_of(tensor.bytes));
    EXPECT_EQ(*file->bytes(*entry), tensor.bytes);
    const auto read = file->read(*entry);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->shape, tensor.shape);
    if (tensor.shape.size() == 2 && tensor.shape[0] == 2) {
      EXPECT_THAT(read->values, ElementsAre(1.5, 0.0, kInf, -kInf, testing::IsNan(), 0.0));
      EXPECT_TRUE(std::signbit(read->values[1]));
    } else if (tensor.shape == std::vector<std::int64_t>{6}) {
      EXPECT_EQ(read->values, integers);
    }
  }
  EXPECT_THAT(file->read(*file->find("BOOL"))->values, ElementsAre(0, 1));
  EXPECT_THAT(file->read(*file->find("scalar"))->values, ElementsAre(7));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(place.path()), {}),
            1);  // No temporary left.
}

TEST(TensorFile, HalvesRoundToNearestEvenAndSubnormalsStay) {
  const auto round_trip = [](const char* dtype, double value) {
    const TempDir place;
    EXPECT_TRUE(
        write_tensors(place / "t", {make_tensor("x", dtype, {1}, std::vector<double>{value})}));
    auto file = TensorFile::open(place / "t");
    return file->read(file->entries().at(0))->values.at(0);
  };
  EXPECT_EQ(round_trip("F16", 2049), 2048);
  EXPECT_EQ(round_trip("F16", 2051), 2052);
  EXPECT_EQ(round_trip("F16", 65519), 65504);
  EXPECT_EQ(round_trip("F16", 65520), kInf);
  EXPECT_EQ(round_trip("F16", std::ldexp(1, -24)), std::ldexp(1, -24));
  EXPECT_EQ(round_trip("F16", std::ldexp(1, -26)), 0);
  EXPECT_EQ(round_trip("F16", std::ldexp(1023.75, -24)), std::ldexp(1024, -24));
  EXPECT_EQ(round_trip("BF16", 257), 256);
  EXPECT_EQ(round_trip("BF16", 259), 260);
}

TEST(TensorFile, EqualBytesHaveEqualDigestsAndOthersNot) {
  const double values[] = {1, 2};
  EXPECT_EQ(digest_of({}), "cbf29ce484222325");
  EXPECT_NE(digest_of(std::as_bytes(std::span(values, 1))),
            digest_of(std::as_bytes(std::span(values, 2))));
}

TEST(TensorFile, WhatDoesNotFitIsRefusedWithItsReason) {
  const std::string one = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  ASSERT_TRUE(open_text(file_with(one, "1234")));
  const std::pair<std::string, const char*> cases[] = {
      {"", "it has 0 bytes"},
      {"1234", "it has 4 bytes"},
      {file_with(one, "1234").substr(0, 20), "its header claims"},
      {std::string(8, '\xff') + one, "its header claims"},
      {file_with("nonsense", ""), "not a JSON object"},
      {file_with(one, "123"), "does not lie where"},
      {file_with(one, "12345"), "belong to no tensor"},
      {file_with(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", "1234"),
       "unknown type F33"},
      {file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"),
       "does not lie where"},
      {file_with(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"), "lacks"},
      {file_with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234"),
       "does not lie where"},
      {file_with(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
                 "1234"),
       "does not lie where"},
      {file_with(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"), "lacks"},
      {file_with(R"({"a":7})", ""), "lacks"},
      {file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "12"),
       "hole or an overlap"},
      {file_with(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           "123"),
       "hole or an overlap"},
  };
  for (const auto& [text, what] : cases) {
    const auto file = open_text(text);
    ASSERT_FALSE(file) << what;
    EXPECT_EQ(file.error().kind, Error::Kind::kMalformedHistory);
    EXPECT_THAT(file.error().what, HasSubstr(what));
  }
}

TEST(TensorFile, MetadataIsSkipped) {
  EXPECT_TRUE(open_text(file_with(R"({"__metadata__":{"format":"pt"}})", "")));
}

TEST(TensorFile, WritingReportsWhatIsWrong) {
  const TempDir place;
  const std::vector<TensorData> twice{make_tensor("x", "U8", {0}, {}),
                                      make_tensor("x", "U8", {0}, {})};
  EXPECT_THAT(write_tensors(place / "t", twice).error().what, HasSubstr("used twice"));
  EXPECT_EQ(write_tensors(place / "none/t", std::vector<TensorData>{}).error().kind,
            Error::Kind::kIo);
  EXPECT_EQ(TensorFile::open(place / "t").error().kind, Error::Kind::kIo);
}

}  // namespace
}  // namespace lockstep::history
