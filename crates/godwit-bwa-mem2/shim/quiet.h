/* Included before every source of bwa-mem2: of what it prints on stderr only errors and warnings remain. It prints dozens of
 * lines for every batch, which would bury the line that says why it ended, and has no switch for that. */
#ifndef GODWIT_QUIET_H
#define GODWIT_QUIET_H

#include <cstdarg>
#include <cstdio>
#include <cstring>

static inline bool godwit_is_complaint(const char *format)
{
	static const char *const words[] = { "rror", "ERROR", "[E::", "[W::", "arning", "WARNING", "fail", "Fail", "nable" };
	for (const char *word : words)
		if (strstr(format, word) != NULL) return true;
	return false;
}

__attribute__((format(printf, 2, 3))) static inline int godwit_fprintf(FILE *stream, const char *format, ...)
{
	if (stream == stderr && !godwit_is_complaint(format)) return 0;
	va_list arguments;
	va_start(arguments, format);
	int printed = vfprintf(stream, format, arguments);
	va_end(arguments);
	return printed;
}

#define fprintf godwit_fprintf

#endif
