// The worker as one translation unit: reading the NCBI headers takes longer than compiling everything else.
#include "hits.cpp"
#include "hooks.cpp"
#include "engine.cpp"
#include "stages.cpp"
#include "main.cpp"
