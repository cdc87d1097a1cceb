/* Loads an index of bwa 0.7.17 and calls mem_process_seqs. Rust does everything else. */
#include "shim.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The Rust side mirrors these structures; libbwa reports no version, so their layout is checked. */
_Static_assert(sizeof(mem_opt_t) == 168 && offsetof(mem_opt_t, max_mem_intv) == 48 && offsetof(mem_opt_t, flag) == 60
                   && offsetof(mem_opt_t, n_threads) == 92 && offsetof(mem_opt_t, mat) == 140,
               "mem_opt_t is not that of bwa 0.7.17: install libbwa-dev 0.7.17");
_Static_assert(MEM_F_PE == 0x2 && MEM_F_NOPAIRING == 0x4 && MEM_F_ALL == 0x8 && MEM_F_NO_MULTI == 0x10
                   && MEM_F_NO_RESCUE == 0x20 && MEM_F_REF_HDR == 0x100 && MEM_F_SOFTCLIP == 0x200
                   && MEM_F_SMARTPE == 0x400 && MEM_F_PRIMARY5 == 0x800 && MEM_F_KEEP_SUPP_MAPQ == 0x1000,
               "the MEM_F_ flags are not those of bwa 0.7.17: install libbwa-dev 0.7.17");
_Static_assert(sizeof(bseq1_t) == 48 && offsetof(bseq1_t, name) == 8 && offsetof(bseq1_t, sam) == 40,
               "bseq1_t is not that of bwa 0.7.17: install libbwa-dev 0.7.17");
_Static_assert(sizeof(mem_pestat_t) == 32 && offsetof(mem_pestat_t, avg) == 16,
               "mem_pestat_t is not that of bwa 0.7.17: install libbwa-dev 0.7.17");
_Static_assert(sizeof(bwt_t) == 1120 && offsetof(bwt_t, sa) == 1112, "bwt_t is not that of bwa 0.7.17");

struct godwit_index {
	bwt_t *bwt;
	bntseq_t *bns;
	const uint8_t *pac;
};

/* Prints a line and exits, as libbwa does for its own errors; the parent reads the line. */
static void fail(const char *what, const char *path)
{
	fprintf(stderr, "godwit-bwa: error: %s: %s\n", what, path);
	exit(1);
}

static char *with_extension(const char *prefix, const char *extension)
{
	char *path = malloc(strlen(prefix) + strlen(extension) + 1);
	if (path == NULL) fail("out of memory", prefix);
	return strcat(strcpy(path, prefix), extension);
}

/* Maps a whole file read-only: its pages are those of the page cache, which every process that maps the file shares. */
static void *map(const char *path, size_t at_least, size_t *bytes)
{
	struct stat status;
	void *memory;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) != 0) fail("cannot open", path);
	if ((size_t)status.st_size < at_least) fail("the file is too short", path);
	memory = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (memory == MAP_FAILED) fail("cannot map", path);
	close(fd);
	*bytes = status.st_size;
	return memory;
}

/* Returns the result of bwt_restore_bwt and bwt_restore_sa (bwt.c), but mapped. Both files start with `primary` and the four
 * upper values of L2; `.sa` continues with the interval and the length, then the array without its entry 0. */
static bwt_t *map_bwt(const char *bwt_path, const char *sa_path)
{
	size_t bwt_bytes, sa_bytes;
	uint64_t *header = map(bwt_path, 40, &bwt_bytes);
	uint64_t *sa = map(sa_path, 56, &sa_bytes);
	bwt_t *bwt = calloc(1, sizeof(bwt_t));
	if (bwt == NULL) fail("out of memory", bwt_path);
	bwt->primary = header[0];
	memcpy(bwt->L2 + 1, header + 1, 32);
	bwt->seq_len = bwt->L2[4];
	bwt->bwt_size = (bwt_bytes - 40) >> 2;
	bwt->bwt = (uint32_t *)(header + 5);
	bwt_gen_cnt_table(bwt);
	if (memcmp(header, sa, 40) != 0 || sa[6] != bwt->seq_len || sa[5] == 0 || sa[5] > INT_MAX)
		fail("the file does not belong to the .bwt file", sa_path);
	bwt->sa_intv = (int)sa[5];
	bwt->n_sa = (bwt->seq_len + bwt->sa_intv) / bwt->sa_intv;
	if (sa_bytes < 48 + 8 * bwt->n_sa) fail("the file is too short", sa_path);
	/* Entry 0 replaces the length in the file. Writing it makes a private copy of one page; if the whole file were mapped
	 * writable, MAP_POPULATE would copy every page. */
	if (mprotect(sa, 56, PROT_READ | PROT_WRITE) != 0) fail("cannot map", sa_path);
	bwt->sa = sa + 6;
	bwt->sa[0] = (bwtint_t)-1;
	return bwt;
}

static bwt_t *read_bwt(const char *bwt_path, const char *sa_path)
{
	bwt_t *bwt = bwt_restore_bwt(bwt_path);
	bwt_restore_sa(sa_path, bwt);
	return bwt;
}

static uint8_t *read_pac(const bntseq_t *bns, const char *path)
{
	size_t bytes = bns->l_pac / 4 + 1;
	uint8_t *pac = calloc(bytes, 1);
	if (pac == NULL) fail("out of memory", path);
	if (fread(pac, 1, bytes, bns->fp_pac) != bytes) fail("the file is too short", path);
	return pac;
}

godwit_index *godwit_index_load(const char *prefix, int share)
{
	char *bwt_path = with_extension(prefix, ".bwt");
	char *sa_path = with_extension(prefix, ".sa");
	char *pac_path = with_extension(prefix, ".pac");
	size_t bytes;
	godwit_index *index = calloc(1, sizeof(godwit_index));
	if (index == NULL) fail("out of memory", prefix);
	index->bns = bns_restore(prefix);
	index->bwt = share ? map_bwt(bwt_path, sa_path) : read_bwt(bwt_path, sa_path);
	index->pac = share ? map(pac_path, index->bns->l_pac / 4 + 1, &bytes) : read_pac(index->bns, pac_path);
	fclose(index->bns->fp_pac);
	index->bns->fp_pac = NULL;
	if (index->bwt->seq_len != 2 * (bwtint_t)index->bns->l_pac) fail("the file does not belong to the .ann file", bwt_path);
	free(bwt_path);
	free(sa_path);
	free(pac_path);
	return index;
}

int32_t godwit_index_contigs(const godwit_index *index)
{
	return index->bns->n_seqs;
}

const char *godwit_index_contig(const godwit_index *index, int32_t contig, int32_t *length, int32_t *is_alt)
{
	const bntann1_t *annotation = &index->bns->anns[contig];
	*length = annotation->len;
	*is_alt = annotation->is_alt;
	return annotation->name;
}

void godwit_index_clear_alternates(godwit_index *index)
{
	for (int32_t i = 0; i < index->bns->n_seqs; ++i) index->bns->anns[i].is_alt = 0;
}

void godwit_align(const mem_opt_t *opt, const godwit_index *index, const char *read_group, int64_t n_processed, int n,
                  bseq1_t *seqs, const mem_pestat_t *pes0)
{
	snprintf(bwa_rg_id, sizeof(bwa_rg_id), "%s", read_group);
	mem_process_seqs(opt, index->bwt, index->bns, index->pac, n_processed, n, seqs, pes0);
}

void godwit_set_verbosity(int verbosity)
{
	bwa_verbose = verbosity;
}
