/* What the Rust side calls: one table of functions per instruction set. The structures are those of bwa 0.7.17 (`godwit_options`
 * is its mem_opt_t); shim.cpp copies or asserts. */
#ifndef GODWIT_BWA_MEM2_SHIM_H
#define GODWIT_BWA_MEM2_SHIM_H

#include <stdint.h>

struct godwit_index;

struct godwit_options {
	int a, b, o_del, e_del, o_ins, e_ins, pen_unpaired, pen_clip5, pen_clip3, w, zdrop;
	uint64_t max_mem_intv;
	int T, flag, min_seed_len, min_chain_weight, max_chain_extend;
	float split_factor;
	int split_width, max_occ, max_chain_gap, n_threads, chunk_size;
	float mask_level, drop_ratio, XA_drop_ratio, mask_level_redun, mapQ_coef_len;
	int mapQ_coef_fac, max_ins, max_matesw, max_XA_hits, max_XA_hits_alt;
	int8_t mat[25];
};


struct godwit_mem2 {
	/* mem_opt_init */
	void (*defaults)(godwit_options *options);
	/* Loads the index at `prefix`; ends the process with a line on any error, as bwa-mem2 does. */
	godwit_index *(*load)(const char *prefix);
	int32_t (*contigs)(const godwit_index *index);
	const char *(*contig)(const godwit_index *index, int32_t contig, int32_t *length, int32_t *is_alt);
	/* bwa-mem2 mem -j */
	void (*forget_alternates)(godwit_index *index);
	/* Aligns a batch: `sam` of each read is set, `seq` is overwritten. `read_group` is its ID, at most 255 bytes and possibly
	 * empty; `pes0` is NULL or four insert size models. Not to be called twice at a time, always with the same number of
	 * threads. */
	void (*align)(const godwit_options *options, godwit_index *index, const char *read_group, int64_t n_processed, int n,
	              void *seqs, const void *pes0);
	/* bwa-mem2 index */
	int (*build)(const char *fasta, const char *prefix);
};

#endif
