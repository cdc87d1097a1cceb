// All of the worker at once: NCBI's headers take longer to read than all else to compile.
#include "hits.cpp"
#include "hooks.cpp"
#include "engine.cpp"
#include "stages.cpp"
#include "main.cpp"
