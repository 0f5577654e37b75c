/* Finds the definition of a name in the other loaded objects, as dlsym(RTLD_NEXT) would.
 *
 * Before glibc 2.34, dlsym was in a library of its own. If this library referred to dlsym, programs without that library could not start.
 * dl_iterate_phdr is in every libc. */
#define _GNU_SOURCE
#include "park.h"
#include "system.h"

#include <elf.h>
#include <link.h>

struct search {
	const char *name;
	uint32_t hash;
	void *found;
};

/* An object's tables. Depending on libc, the addresses in them are as in the file, or absolute. */
struct tables {
	uintptr_t base;
	const ElfW(Sym) * symbols;
	const char *names;
	const ElfW(Half) * versions;
	const uint32_t *hashes; /* of GNU's kind */
	const uint32_t *old_hashes;
};

static uint32_t gnu_hash(const char *name) {
	uint32_t hash = 5381;
	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

static int is_same(const char *a, const char *b) {
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static const void *absolute(uintptr_t base, uintptr_t address) {
	return (const void *)(address < base ? base + address : address);
}

static void read_tables(struct tables *tables, const ElfW(Dyn) * entry) {
	for (; entry->d_tag != DT_NULL; entry++) {
		const void *address = absolute(tables->base, entry->d_un.d_ptr);
		switch (entry->d_tag) {
		case DT_SYMTAB:
			tables->symbols = address;
			break;
		case DT_STRTAB:
			tables->names = address;
			break;
		case DT_VERSYM:
			tables->versions = address;
			break;
		case DT_GNU_HASH:
			tables->hashes = address;
			break;
		case DT_HASH:
			tables->old_hashes = address;
			break;
		}
	}
}

/* If the highest bit of its version is set, a symbol is there for old programs only. */
static int is_meant(const struct tables *tables, uint32_t i, const char *name) {
	const ElfW(Sym) *symbol = tables->symbols + i;
	int is_default = !tables->versions || !(tables->versions[i] & 0x8000);
	return symbol->st_shndx && is_default && is_same(tables->names + symbol->st_name, name);
}

static const ElfW(Sym) * look_up_old(const struct tables *tables, const char *name) {
	uint32_t count = tables->old_hashes ? tables->old_hashes[1] : 0;
	for (uint32_t i = 0; i < count; i++)
		if (is_meant(tables, i, name))
			return tables->symbols + i;
	return NULL;
}

static const ElfW(Sym) * look_up(const struct tables *tables, const char *name, uint32_t hash) {
	if (!tables->hashes)
		return look_up_old(tables, name);
	uint32_t buckets = tables->hashes[0], first = tables->hashes[1], filters = tables->hashes[2];
	const uint32_t *bucket = tables->hashes + 4 + filters * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *chain = bucket + buckets;
	if (!buckets)
		return NULL;
	uint32_t i = bucket[hash % buckets];
	if (i < first)
		return NULL;
	for (;; i++) {
		uint32_t other = chain[i - first];
		if ((other | 1) == (hash | 1) && is_meant(tables, i, name))
			return tables->symbols + i;
		if (other & 1)
			return NULL;
	}
}

static int search_object(struct dl_phdr_info *object, size_t size, void *data) {
	struct search *search = data;
	struct tables tables = {.base = object->dlpi_addr};
	int is_ours = 0;
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + part->p_vaddr;
		if (part->p_type == PT_LOAD && (uintptr_t)&gnu_hash - start < part->p_memsz)
			is_ours = 1;
		if (part->p_type == PT_DYNAMIC)
			read_tables(&tables, (const ElfW(Dyn) *)start);
	}
	if (is_ours || !tables.symbols || !tables.names)
		return 0;
	const ElfW(Sym) *symbol = look_up(&tables, search->name, search->hash);
	if (!symbol || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
		return 0;
	search->found = (void *)(tables.base + symbol->st_value);
	return 1;
}

HIDDEN void *wafpark_find(const char *name) {
	struct search search = {name, gnu_hash(name), NULL};
	dl_iterate_phdr(search_object, &search);
	return search.found;
}
