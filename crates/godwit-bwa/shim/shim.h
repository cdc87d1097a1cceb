/* The functions that the Rust side calls. All structures are bwa 0.7.17's own; shim.c fails to compile with any others. */
#ifndef GODWIT_BWA_SHIM_H
#define GODWIT_BWA_SHIM_H

#include <stdint.h>
#include <bwa/bwamem.h>

typedef struct godwit_index godwit_index;

/* Loads the index at `prefix`; on any error it prints a line and exits with status 1, as bwa does. With `share` the large
 * files are mapped instead of read. */
godwit_index *godwit_index_load(const char *prefix, int share);
int32_t godwit_index_contigs(const godwit_index *index);
const char *godwit_index_contig(const godwit_index *index, int32_t contig, int32_t *length, int32_t *is_alt);
/* bwa mem -j */
void godwit_index_clear_alternates(godwit_index *index);

/* Aligns a batch: `seqs[i].sam` is set, `seqs[i].seq` is overwritten. `read_group` is its ID, at most 255 bytes and
 * possibly empty; `pes0` is NULL or four insert size models. Calls must not overlap. */
void godwit_align(const mem_opt_t *opt, const godwit_index *index, const char *read_group, int64_t n_processed, int n,
                  bseq1_t *seqs, const mem_pestat_t *pes0);

/* bwa_verbose: 1 errors, 2 warnings, 3 messages */
void godwit_set_verbosity(int verbosity);

#endif
