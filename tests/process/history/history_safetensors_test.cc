// Tensor files against the Python package of the format, both ways. The interpreter comes from
// LOCKSTEP_PYTHON; without one that has `safetensors` and `numpy` the test is skipped.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "harness/history/tensor_file.h"
#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;

std::string interpreter() {
  const char* const named = std::getenv("LOCKSTEP_PYTHON");
  for (const std::string& python : {std::string(named == nullptr ? "" : named),
                                    std::string(LOCKSTEP_SOURCE "/.venv/bin/python")}) {
    if (!python.empty() &&
        std::system((python + " -c 'import safetensors.numpy' 2>/dev/null").c_str()) == 0)
      return python;
  }
  return "";
}

int run_script(const std::string& python, const TempDir& place, const std::string& script) {
  std::ofstream(place / "script.py") << "import sys, numpy as np, safetensors.numpy as st\n"
                                     << script;
  return std::system((python + " " + (place / "script.py") + " " + place.path()).c_str());
}

TEST(Safetensors, PythonReadsOurs) {
  const std::string python = interpreter();
  if (python.empty())
    GTEST_SKIP() << "needs a Python with safetensors and numpy (LOCKSTEP_PYTHON)";
  const TempDir place;
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> floats{1.5, -inf, std::nan(""), -0.25};
  const std::vector<double> integers{1, 0, 1, 100};
  std::vector<TensorData> tensors;
  for (const char* dtype : {"F64", "F32", "F16"})
    tensors.push_back(make_tensor(dtype, dtype, {2, 2}, floats));
  for (const char* dtype : {"I64", "I32", "U8", "BOOL"})
    tensors.push_back(make_tensor(dtype, dtype, {4}, integers));
  tensors.push_back(make_tensor("scalar", "F64", {}, std::vector<double>{7}));
  tensors.push_back(make_tensor("empty", "F32", {0, 3}, {}));
  ASSERT_TRUE(write_tensors(place / "ours", tensors));
  EXPECT_EQ(run_script(python, place, R"(
t = st.load_file(sys.argv[1] + "/ours")
want = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "U8": "u1", "BOOL": "?"}
assert set(t) == set(want) | {"scalar", "empty"}, t.keys()
for name, kind in want.items():
    assert t[name].dtype == np.dtype(kind), (name, t[name].dtype)
f = np.array([[1.5, -np.inf], [np.nan, -0.25]])
for name in ("F64", "F32", "F16"):
    np.testing.assert_array_equal(t[name], f.astype(t[name].dtype))
for name in ("I64", "I32", "U8", "BOOL"):
    np.testing.assert_array_equal(t[name], np.array([1, 0, 1, 100]).astype(t[name].dtype))
assert t["scalar"].shape == () and t["scalar"] == 7
assert t["empty"].shape == (0, 3)
)"),
            0);
}

TEST(Safetensors, WeReadPythons) {
  const std::string python = interpreter();
  if (python.empty())
    GTEST_SKIP() << "needs a Python with safetensors and numpy (LOCKSTEP_PYTHON)";
  const TempDir place;
  ASSERT_EQ(run_script(python, place, R"(
r = np.random.default_rng(1)
h = np.concatenate([r.standard_normal(5000) * 2.0 ** r.integers(-26, 17, 5000), [np.inf, -np.inf, np.nan, 65519.9, 65520]])
st.save_file({"f8": h, "f2": h.astype("f2"), "i4": np.array([[-5], [7]], "i4"), "b": np.array([True, False])},
             sys.argv[1] + "/theirs", metadata={"format": "np"})
)"),
            0);
  auto file = TensorFile::open(place / "theirs");
  ASSERT_TRUE(file) << file.error().what;
  EXPECT_THAT(file->read(*file->find("i4"))->values, ElementsAre(-5, 7));
  EXPECT_THAT(file->find("i4")->shape, ElementsAre(2, 1));
  EXPECT_THAT(file->read(*file->find("b"))->values, ElementsAre(1, 0));
  // Their rounding to half precision is ours, bit for bit.
  const auto wide = file->read(*file->find("f8"));
  const TensorData halves = make_tensor("f2", "F16", {5005}, wide->values);
  EXPECT_EQ(halves.bytes, *file->bytes(*file->find("f2")));
  const auto narrow = file->read(*file->find("f2"));
  ASSERT_TRUE(narrow);
  EXPECT_TRUE(std::isnan(narrow->values[5002]));
}

}  // namespace
}  // namespace lockstep::history
