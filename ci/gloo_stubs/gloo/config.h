// The PyTorch wheel includes gloo headers and does not ship them. Declarations are enough: nothing
// is linked from gloo.
#pragma once
