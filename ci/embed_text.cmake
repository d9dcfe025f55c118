# Makes a C++ source of one text: cmake -D INPUT=... -D NAME=kPage -D SPACE=lockstep -D OUTPUT=... -P this.
# A compiler need take no string of more than 64 KiB: pieces are put together.
file(READ ${INPUT} text)
set(source "// Written by ci/embed_text.cmake.\nnamespace ${SPACE} {\n\n")
string(APPEND source "extern const char* const ${NAME};\nconst char* const ${NAME} =")
string(LENGTH "${text}" length)
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND source "\n    R\"text(${piece})text\"")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUTPUT} "${source};\n\n}  // namespace ${SPACE}\n")
