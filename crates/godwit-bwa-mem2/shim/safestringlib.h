/* The five functions of safestringlib that bwa-mem2 calls, as its own sources use them: no result is looked at, and what
 * does not fit ends the process. */
#ifndef GODWIT_SAFESTRINGLIB_H
#define GODWIT_SAFESTRINGLIB_H

#include <cstdio>
#include <cstdlib>
#include <cstring>

typedef size_t rsize_t;
typedef int errno_t;
#ifndef EOK
#define EOK 0
#endif
/* As safestringlib has it: memcpy_bwamem copies in steps of it. */
#define RSIZE_MAX_MEM (256UL << 20)

static inline void godwit_fits(bool fits)
{
	if (fits) return;
	fputs("error: bwa-mem2: a text is too long for its buffer (is the path of the reference very long?)\n", stderr);
	exit(1);
}

static inline errno_t strncpy_s(char *to, rsize_t room, const char *from, rsize_t most)
{
	size_t bytes = strnlen(from, most);
	godwit_fits(bytes < room);
	memcpy(to, from, bytes);
	to[bytes] = 0;
	return EOK;
}

static inline errno_t strcpy_s(char *to, rsize_t room, const char *from)
{
	return strncpy_s(to, room, from, strlen(from));
}

static inline errno_t strncat_s(char *to, rsize_t room, const char *from, rsize_t most)
{
	size_t used = strnlen(to, room);
	godwit_fits(used < room);
	return strncpy_s(to + used, room - used, from, most);
}

static inline errno_t strcat_s(char *to, rsize_t room, const char *from)
{
	return strncat_s(to, room, from, strlen(from));
}

static inline errno_t memcpy_s(void *to, rsize_t room, const void *from, rsize_t bytes)
{
	godwit_fits(bytes <= room);
	memcpy(to, from, bytes);
	return EOK;
}

#endif
