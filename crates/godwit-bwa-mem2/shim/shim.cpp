/* Loads an index of bwa-mem2 2.2.1 and calls mem_process_seqs, as main_mem and process (fastmap.cpp) do. */
#include "shim.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "FMI_search.h"
#include "bwa.h"
#include "bwamem.h"
#include "fastmap.h"

/* The Rust side mirrors these structures. */
static_assert(sizeof(bseq1_t) == 48 && offsetof(bseq1_t, name) == 8 && offsetof(bseq1_t, sam) == 40, "bseq1_t");
static_assert(sizeof(mem_pestat_t) == 32 && offsetof(mem_pestat_t, avg) == 16, "mem_pestat_t");
static_assert(sizeof(godwit_options) == 168 && offsetof(godwit_options, max_mem_intv) == 48
                  && offsetof(godwit_options, flag) == 60 && offsetof(godwit_options, n_threads) == 92
                  && offsetof(godwit_options, mat) == 140, "mem_opt_t of bwa 0.7.17");
static_assert(MEM_F_PE == 0x2 && MEM_F_NOPAIRING == 0x4 && MEM_F_ALL == 0x8 && MEM_F_NO_MULTI == 0x10
                  && MEM_F_NO_RESCUE == 0x20 && MEM_F_REF_HDR == 0x100 && MEM_F_SOFTCLIP == 0x200
                  && MEM_F_SMARTPE == 0x400 && MEM_F_PRIMARY5 == 0x800 && MEM_F_KEEP_SUPP_MAPQ == 0x1000, "MEM_F_");

struct godwit_index {
	FMI_search *fmi;
	uint8_t *ref_string;
	worker_t worker;
	int threads;
	int reads;
};

/* Every field but chunk_size, which is wider in bwa-mem2 and which nothing below main_mem reads. */
#define EACH_FIELD(DO) \
	DO(a) DO(b) DO(o_del) DO(e_del) DO(o_ins) DO(e_ins) DO(pen_unpaired) DO(pen_clip5) DO(pen_clip3) DO(w) DO(zdrop) \
	DO(max_mem_intv) DO(T) DO(flag) DO(min_seed_len) DO(min_chain_weight) DO(max_chain_extend) DO(split_factor) \
	DO(split_width) DO(max_occ) DO(max_chain_gap) DO(n_threads) DO(mask_level) DO(drop_ratio) DO(XA_drop_ratio) \
	DO(mask_level_redun) DO(mapQ_coef_len) DO(mapQ_coef_fac) DO(max_ins) DO(max_matesw) DO(max_XA_hits) \
	DO(max_XA_hits_alt)

static void defaults(godwit_options *options)
{
	mem_opt_t *own = mem_opt_init();
#define TAKE(field) options->field = own->field;
	EACH_FIELD(TAKE)
#undef TAKE
	options->chunk_size = (int)own->chunk_size;
	memcpy(options->mat, own->mat, sizeof(own->mat));
	free(own);
}

static mem_opt_t own_options(const godwit_options *options)
{
	mem_opt_t own;
	memset(&own, 0, sizeof(own));
#define GIVE(field) own.field = options->field;
	EACH_FIELD(GIVE)
#undef GIVE
	own.chunk_size = options->chunk_size;
	memcpy(own.mat, options->mat, sizeof(own.mat));
	return own;
}

/* The genome, a base to a byte and both strands, as main_mem reads it. */
static uint8_t *read_bases(const char *prefix, int64_t bases)
{
	std::string path = std::string(prefix) + ".0123";
	FILE *file = fopen(path.c_str(), "r");
	uint8_t *read = (uint8_t *)_mm_malloc(bases, 64);
	if (file == NULL || read == NULL || fread(read, 1, bases, file) != (size_t)bases) {
		fprintf(stderr, "godwit-bwa-mem2: error: cannot read the whole of %s\n", path.c_str());
		exit(1);
	}
	fclose(file);
	return read;
}

static godwit_index *load(const char *prefix)
{
	godwit_index *index = (godwit_index *)calloc(1, sizeof(godwit_index));
	if (index == NULL) exit(1);
	index->fmi = new FMI_search(prefix);
	index->fmi->load_index();
	index->ref_string = read_bases(prefix, 2 * index->fmi->idx->bns->l_pac);
	return index;
}

static int32_t contigs(const godwit_index *index)
{
	return index->fmi->idx->bns->n_seqs;
}

static const char *contig(const godwit_index *index, int32_t contig, int32_t *length, int32_t *is_alt)
{
	const bntann1_t *annotation = &index->fmi->idx->bns->anns[contig];
	*length = annotation->len;
	*is_alt = annotation->is_alt;
	return annotation->name;
}

static void forget_alternates(godwit_index *index)
{
	for (int32_t i = 0; i < contigs(index); ++i) index->fmi->idx->bns->anns[i].is_alt = 0;
}

/* Room for a batch: kept from one to the next, and made again for a larger one. */
static void make_room(godwit_index *index, const mem_opt_t *options, int reads)
{
	if (index->threads != 0 && reads <= index->reads) return;
	if (index->threads != 0) worker_free(index->worker, index->threads);
	index->threads = options->n_threads;
	index->reads = reads;
	worker_alloc(options, index->worker, reads, options->n_threads);
	index->worker.ref_string = index->ref_string;
	index->worker.fmi = index->fmi;
	index->worker.nreads = reads;
}

static void align(const godwit_options *options, godwit_index *index, const char *read_group, int64_t n_processed, int n,
                  void *seqs, const void *pes0)
{
	mem_opt_t own = own_options(options);
	make_room(index, &own, n);
	snprintf(bwa_rg_id, sizeof(bwa_rg_id), "%s", read_group);
	mem_process_seqs(&own, n_processed, n, (bseq1_t *)seqs, (const mem_pestat_t *)pes0, index->worker);
}

static int build(const char *fasta, const char *prefix)
{
	return bwa_idx_build(fasta, prefix);
}

/* GODWIT_TABLE is the name of the only symbol that leaves this instruction set's object. */
extern "C" const godwit_mem2 GODWIT_TABLE = { defaults, load, contigs, contig, forget_alternates, align, build };
