// The functions of the interpreter in this process that the watch calls, found by name: the tap is
// compiled without Python's headers. An object is a void*.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

struct PythonApi {
  int (*add_pending_call)(int (*function)(void*), void* argument);
  int (*ensure)();  // PyGILState_STATE, an enum.
  void (*release_state)(int state);
  void* (*this_thread)();
  void* (*save_thread)();
  void (*restore_thread)(void* thread);
  void* (*modules)();
  void* (*compile)(const char* text, const char* name, int start);
  void* (*evaluate)(void* code, void* globals, void* locals);
  void* (*new_dictionary)();
  void* (*entry)(void* dictionary, const char* key);
  int (*set_entry)(void* dictionary, const char* key, void* value);
  void* (*new_function)(void* method, void* self, void* module);
  void* (*call)(void* callable, void* arguments, void* keywords);
  void* (*new_tuple)(std::ptrdiff_t size);
  int (*set_item)(void* tuple, std::ptrdiff_t at, void* item);
  std::ptrdiff_t (*tuple_size)(void* tuple);
  void* (*tuple_item)(void* tuple, std::ptrdiff_t at);
  std::ptrdiff_t (*list_size)(void* list);
  void* (*list_item)(void* list, std::ptrdiff_t at);
  long long (*number)(void* object);
  void* (*new_number)(long long value);
  double (*real)(void* object);
  void* (*new_real)(double value);
  const char* (*text)(void* object);
  void* (*attribute)(void* object, const char* name);
  void* (*error)();
  void (*forget_error)();
  void (*keep)(void* object);
  void (*release)(void* object);
  void (*fetch_error)(void** type, void** value, void** trace);
  void (*restore_error)(void* type, void* value, void* trace);
  int (*error_is)(void* type);
  void* (*new_method)(void* function);  // Bound as one that is written in Python.
  void** stop_iteration;
  void** exception;
  void* none;
  void* cell_type;

  bool find() {
    return get(add_pending_call, "Py_AddPendingCall") && get(ensure, "PyGILState_Ensure") &&
           get(release_state, "PyGILState_Release") &&
           get(this_thread, "PyGILState_GetThisThreadState") &&
           get(save_thread, "PyEval_SaveThread") && get(restore_thread, "PyEval_RestoreThread") &&
           get(modules, "PyImport_GetModuleDict") && get(compile, "Py_CompileString") &&
           get(evaluate, "PyEval_EvalCode") && get(new_dictionary, "PyDict_New") &&
           get(entry, "PyDict_GetItemString") && get(set_entry, "PyDict_SetItemString") &&
           get(new_function, "PyCFunction_NewEx") && get(call, "PyObject_Call") &&
           get(new_tuple, "PyTuple_New") && get(set_item, "PyTuple_SetItem") &&
           get(tuple_size, "PyTuple_Size") && get(tuple_item, "PyTuple_GetItem") &&
           get(list_size, "PyList_Size") && get(list_item, "PyList_GetItem") &&
           get(number, "PyLong_AsLongLong") && get(new_number, "PyLong_FromLongLong") &&
           get(real, "PyFloat_AsDouble") && get(new_real, "PyFloat_FromDouble") &&
           get(text, "PyUnicode_AsUTF8") && get(attribute, "PyObject_GetAttrString") &&
           get(error, "PyErr_Occurred") && get(forget_error, "PyErr_Clear") &&
           get(fetch_error, "PyErr_Fetch") && get(restore_error, "PyErr_Restore") &&
           get(error_is, "PyErr_ExceptionMatches") && get(new_method, "PyInstanceMethod_New") &&
           get(stop_iteration, "PyExc_StopIteration") && get(exception, "PyExc_Exception") &&
           get(keep, "Py_IncRef") && get(release, "Py_DecRef") && get(none, "_Py_NoneStruct") &&
           get(cell_type, "PyCell_Type");
  }
  template <class Function>
  static bool get(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }
};

/// As methodobject.h has it.
struct Method {
  const char* name;
  void* (*function)(void* self, void* const* arguments, std::ptrdiff_t count);
  int flags;
  const char* help;
};
constexpr int kFastCall = 0x0080;
constexpr int kWholeFile = 257;  // Py_file_input
constexpr std::uint16_t kCellContents = 16;

}  // namespace lockstep::tap

#pragma GCC visibility pop
