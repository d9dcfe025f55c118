#include "harness/tap/python_groups.h"

#include <dlfcn.h>

#include <cstring>

#include "harness/python/variables.h"

namespace lockstep::tap {
namespace {

/// The numbers of a Python list; empty if it holds anything else. It is a variable of a function
/// that waits for us, and no other thread has it.
std::vector<std::int32_t> numbers_in(const python::Layout& layout, std::uint64_t list,
                                     std::size_t count) {
  static const auto list_type = reinterpret_cast<std::uint64_t>(dlsym(RTLD_DEFAULT, "PyList_Type"));
  static const auto int_type = reinterpret_cast<std::uint64_t>(dlsym(RTLD_DEFAULT, "PyLong_Type"));
  std::uint64_t type = 0, length = 0, items = 0;
  const Direct memory;
  if (list_type == 0 || int_type == 0 || !python::load(memory, list + python::kObjectType, type) ||
      type != list_type || !python::load(memory, list + python::kListLength, length) ||
      length != count || !python::load(memory, list + python::kListItems, items))
    return {};
  std::vector<std::int32_t> numbers;
  for (std::uint64_t i = 0; i < length; ++i) {
    std::uint64_t item = 0;
    python::load(memory, items + 8 * i, item);
    const auto number = python::small_integer(layout, memory, item, int_type);
    if (!number)
      return {};
    numbers.push_back(static_cast<std::int32_t>(*number));
  }
  return numbers;
}

/// What is asked of the interpreter. Objects that `attribute` gives are released here.
struct Objects {
  int (*has_gil)();
  void* (*error)();
  void (*forget_error)();
  void* (*modules)();
  void* (*entry)(void* dict, const char* key);
  void* (*attribute)(void* object, const char* name);
  int (*next)(void* dict, std::ptrdiff_t* place, void** key, void** value);
  std::ptrdiff_t (*length)(void* list);
  void* (*item)(void* list, std::ptrdiff_t index);
  const char* (*utf8)(void* text);
  void (*release)(void* object);

  bool find() {
    return get(has_gil, "PyGILState_Check") && get(error, "PyErr_Occurred") &&
           get(forget_error, "PyErr_Clear") && get(modules, "PyImport_GetModuleDict") &&
           get(entry, "PyDict_GetItemString") && get(attribute, "PyObject_GetAttrString") &&
           get(next, "PyDict_Next") && get(length, "PyList_Size") && get(item, "PyList_GetItem") &&
           get(utf8, "PyUnicode_AsUTF8") && get(release, "Py_DecRef");
  }
  template <class Function>
  static bool get(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }
  /// `use` gets the attribute, if there is one.
  template <class Use>
  void with(void* object, const char* name, Use use) const {
    void* const found = object == nullptr ? nullptr : attribute(object, name);
    if (found != nullptr) {
      use(found);
      release(found);
    }
  }
};

}  // namespace

std::optional<std::vector<std::int32_t>> ranks_being_grouped(const PythonSites& python,
                                                             std::size_t size) {
  constexpr std::uint32_t kFramesMax = 4, kVariablesMax = 64;
  const python::Layout& layout = python.layout();
  std::optional<std::vector<std::int32_t>> ranks;
  std::uint32_t frames = 0;
  python.for_each_frame([&](std::uint64_t frame, std::uint64_t code) {
    const auto is = [&](std::uint64_t text, const char* expected) {
      char name[64];
      return python::text_at(layout, Direct{}, text, name, sizeof name) != 0 &&
             std::strcmp(name, expected) == 0;
    };
    if (!is(code + layout.code_name, "_new_process_group_helper"))
      return ++frames < kFramesMax;
    ranks.emplace();
    python::for_each_local(layout, Direct{}, frame, code, kVariablesMax,
                           [&](std::uint64_t name, std::uint64_t object) {
                             if (is(name, "global_ranks_in_group"))
                               ranks = numbers_in(layout, object, size);
                           });
    return false;
  });
  return ranks;
}

void for_each_set_aside(void (*take)(const char* op, std::uint32_t calls)) {
  Objects python{};
  if (!python.find() || python.has_gil() != 1 || python.error() != nullptr)
    return;
  const auto take_list = [&](void* list) {
    const std::ptrdiff_t calls = python.length(list);
    if (calls <= 0)
      return;
    python.with(python.item(list, 0), "op", [&](void* function) {
      python.with(function, "__name__", [&](void* name) {
        const char* const op = python.utf8(name);
        if (op != nullptr)
          take(op, static_cast<std::uint32_t>(calls));
      });
    });
  };
  void* const module = python.entry(python.modules(), "torch.distributed.distributed_c10d");
  python.with(module, "_world", [&](void* world) {
    python.with(world, "_pg_coalesce_state", [&](void* lists) {
      std::ptrdiff_t place = 0;
      void *key = nullptr, *list = nullptr;
      while (python.next(lists, &place, &key, &list) != 0)
        take_list(list);
    });
  });
  if (python.error() != nullptr)
    python.forget_error();
}

}  // namespace lockstep::tap
