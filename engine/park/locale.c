/* Records the files that libc looks for by itself for languages and time zones, if they are not the system's own.
 *
 * Which files these are depends on the locale, on variables, and on folders that the program names, in any order. So they are recorded
 * whenever one of these changes. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <fcntl.h>
#include <libintl.h>
#include <locale.h>
#include <stdlib.h>
#include <time.h>
#include <wchar.h>

#define LONGEST 4096
#define PART 64 /* bytes of each part of a locale's name */
#define DOMAINS 8 /* how many catalogs with folders of their own are followed */

#define REAL(result, name, parameters)                                                                                       \
	static result(*real) parameters;                                                                                         \
	if (!real)                                                                                                               \
		*(void **)(&real) = wafpark_find(#name);

static uint32_t length_of(const char *text) {
	uint32_t length = 0;
	while (text && text[length])
		length++;
	return length;
}

static int begins(const char *text, const char *start) {
	while (*start && *text == *start)
		text++, start++;
	return !*start;
}

static int is_same(const char *a, const char *b) {
	return begins(a, b) && length_of(a) == length_of(b);
}

static const char *value_of(const char *name) {
	const char *value = wafpark_find_value(name);
	return value ? value : "";
}

/* A path that is being put together. `end` points at its zero byte. */
struct path {
	char *end;
	char text[LONGEST];
};

static void add(struct path *path, const char *text, uint32_t size) {
	for (uint32_t i = 0; i < size && path->end < path->text + LONGEST - 1; i++)
		*path->end++ = text[i];
	*path->end = 0;
}

static void add_text(struct path *path, const char *text) {
	add(path, text, length_of(text));
}

/* Records a file that libc reads if it is there. */
static void note_read(const char *path) {
	wafpark_note(WAFPARK_OPEN, SYSTEM(SYS_faccessat, AT_FDCWD, path, R_OK), O_RDONLY, AT_FDCWD, path);
}

/* ---- the names that libc derives from a locale: language[_territory][.codeset][@modifier], with parts left out */

struct name {
	char language[PART], territory[PART], codeset[PART], modifier[PART], plain[PART];
};

/* Copies text up to one of these marks. */
static const char *take_until(char part[PART], const char *from, const char *end, const char *marks) {
	uint32_t size = 0;
	for (; from < end; from++) {
		for (const char *mark = marks; *mark; mark++)
			if (*from == *mark)
				return from;
		if (size < PART - 1)
			part[size++] = *from;
	}
	return from;
}

/* libc also searches for "UTF-8" as "utf8", and for "8859-1" as "iso88591". */
static void normalize_codeset(char plain[PART], const char *codeset) {
	uint32_t size = 0;
	int has_letters = 0;
	for (const char *c = codeset; *c; c++)
		has_letters |= ((*c | 32) >= 'a' && (*c | 32) <= 'z');
	for (const char *c = has_letters ? "" : "iso"; *c; c++)
		plain[size++] = *c;
	for (const char *c = codeset; *c && size < PART - 1; c++)
		if ((*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z'))
			plain[size++] = *c >= 'A' && *c <= 'Z' ? (char)(*c | 32) : *c;
}

static struct name name_of(const char *from, const char *end) {
	struct name name = {0};
	from = take_until(name.language, from, end, "_.@");
	if (from < end && *from == '_')
		from = take_until(name.territory, from + 1, end, ".@");
	if (from < end && *from == '.')
		from = take_until(name.codeset, from + 1, end, "@");
	if (from < end)
		take_until(name.modifier, from + 1, end, "");
	if (name.codeset[0])
		normalize_codeset(name.plain, name.codeset);
	return name;
}

static void add_part(struct path *path, char mark, const char *part) {
	add(path, &mark, 1);
	add_text(path, part);
}

typedef void visit(struct path *, const void *);

/* Visits each name below the folder with which the path begins. */
static void visit_names(struct path *path, const char *from, const char *end, visit *each, const void *data) {
	const struct name name = name_of(from, end);
	char *const start = path->end;
	for (unsigned parts = 0; parts < 12; parts++) {
		const unsigned which = parts / 4; /* no codeset, as it is, plain */
		const char *codeset = which == 0 ? "" : which == 1 ? name.codeset : name.plain;
		const char *territory = parts & 1 ? name.territory : "", *modifier = parts & 2 ? name.modifier : "";
		if ((which && !*codeset) || ((parts & 1) && !*territory) || ((parts & 2) && !*modifier))
			continue;
		path->end = start;
		add_text(path, name.language);
		if (*territory)
			add_part(path, '_', territory);
		if (*codeset)
			add_part(path, '.', codeset);
		if (*modifier)
			add_part(path, '@', modifier);
		each(path, data);
	}
	path->end = start;
}

/* Visits the names of each locale in a list with one of these marks as separator. */
static void visit_list(struct path *path, const char *list, const char *marks, visit *each, const void *data) {
	for (const char *at = list; *at;) {
		const char *end = at;
		for (int is_in = 1; is_in && *end; end += is_in)
			for (const char *mark = marks; *mark && is_in; mark++)
				is_in = *end != *mark;
		if (end > at)
			visit_names(path, at, end, each, data);
		at = *end ? end + 1 : end;
	}
}

/* Visits folders with colons between them. */
static void visit_folders(const char *folders, void (*each)(const char *folder, uint32_t size, const char *what), const char *what) {
	while (*folders) {
		uint32_t size = 0;
		while (folders[size] && folders[size] != ':')
			size++;
		if (size)
			each(folders, size, what);
		folders += size + !!folders[size];
	}
}

/* ---- message catalogs */

static struct domain {
	char name[PART], folder[LONGEST];
} domains[DOMAINS];

/* The system's own catalogs follow from variables that are facts of every command: docs/observing.md. */
static int is_of_system(const char *folder) {
	return begins(folder, "/usr/share/locale") || begins(folder, "/usr/lib/locale");
}

static void note_catalog(struct path *path, const void *domain) {
	add_text(path, "/LC_MESSAGES/");
	add_text(path, ((const struct domain *)domain)->name);
	add_text(path, ".mo");
	note_read(path->text);
}

static void note_domain(const struct domain *domain) {
	static char *(*locale_of)(int, const char *);
	if (!locale_of)
		*(void **)(&locale_of) = wafpark_find("setlocale");
	const char *locale = locale_of ? locale_of(LC_MESSAGES, NULL) : NULL;
	if (!locale || is_same(locale, "C"))
		return;
	struct path path = {path.text, ""};
	add_text(&path, domain->folder);
	add_text(&path, "/");
	const char *languages = value_of("LANGUAGE");
	visit_list(&path, *languages ? languages : locale, ":", note_catalog, domain);
}

static void note_domains(void) {
	for (unsigned i = 0; i < DOMAINS && wafpark_watch; i++)
		if (domains[i].name[0])
			note_domain(&domains[i]);
}

static void follow_domain(const char *name, const char *folder) {
	unsigned at = 0;
	while (at < DOMAINS && domains[at].name[0] && !is_same(domains[at].name, name))
		at++;
	if (at == DOMAINS || length_of(name) >= PART || length_of(folder) >= LONGEST) {
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_WALK, "");
		return;
	}
	for (uint32_t i = 0; i <= length_of(name); i++)
		domains[at].name[i] = name[i];
	for (uint32_t i = 0; i <= length_of(folder); i++)
		domains[at].folder[i] = folder[i];
	note_domain(&domains[at]);
}

EXPORT char *bindtextdomain(const char *domain, const char *folder) {
	REAL(char *, bindtextdomain, (const char *, const char *))
	char *result = real ? real(domain, folder) : NULL;
	if (wafpark_watch && domain && *domain && folder && !is_of_system(folder))
		follow_domain(domain, folder);
	return result;
}

/* ---- locales: if LOCPATH is set, libc looks there first */

static void note_categories(struct path *path, const void *unused) {
	static const char *const categories[] = {"CTYPE", "NUMERIC", "TIME", "COLLATE", "MONETARY", "MESSAGES", "MESSAGES/SYS_LC_MESSAGES",
	                                         "PAPER", "NAME", "ADDRESS", "TELEPHONE", "MEASUREMENT", "IDENTIFICATION"};
	char *const start = path->end;
	(void)unused;
	for (unsigned i = 0; i < sizeof categories / sizeof *categories; i++) {
		path->end = start;
		add_text(path, "/LC_");
		add_text(path, categories[i]);
		note_read(path->text);
	}
}

static void note_locale(const char *folder, uint32_t size, const char *locale) {
	static const char *const variables[] = {"LC_ALL", "LANG", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY",
	                                        "LC_MESSAGES", "LC_PAPER", "LC_NAME", "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT",
	                                        "LC_IDENTIFICATION"};
	struct path path = {path.text, ""};
	add(&path, folder, size);
	add_text(&path, "/");
	/* "LC_CTYPE=de_DE;LC_TIME=…" names several locales. The names of the categories are visited, too, which does no harm. */
	visit_list(&path, locale, ";=", note_categories, NULL);
	for (unsigned i = 0; i < sizeof variables / sizeof *variables && !*locale; i++) {
		const char *value = value_of(variables[i]);
		visit_list(&path, value, "", note_categories, NULL);
	}
}

static void note_locales(const char *locale) {
	if (!wafpark_watch || !locale || is_same(locale, "C") || is_same(locale, "POSIX"))
		return;
	visit_folders(value_of("LOCPATH"), note_locale, locale);
}

EXPORT char *setlocale(int category, const char *locale) {
	REAL(char *, setlocale, (int, const char *))
	wafpark_see_obstacle(WAFPARK_LOCALE);
	note_locales(locale);
	char *result = real ? real(category, locale) : NULL;
	if (locale)
		note_domains();
	return result;
}

EXPORT locale_t newlocale(int categories, const char *locale, locale_t base) {
	REAL(locale_t, newlocale, (int, const char *, locale_t))
	note_locales(locale);
	return real ? real(categories, locale, base) : NULL;
}

/* It does not matter here which variable of a language changes. */
EXPORT int setenv(const char *name, const char *value, int replaces) {
	REAL(int, setenv, (const char *, const char *, int))
	const int result = real ? real(name, value, replaces) : -1;
	if (name && begins(name, "LANG"))
		note_domains();
	return result;
}

EXPORT int putenv(char *entry) {
	REAL(int, putenv, (char *))
	const int result = real ? real(entry) : -1;
	if (begins(entry, "LANG"))
		note_domains();
	return result;
}

/* Records the lists of modules that convert text. If there is a folder of lists, libc reads all of it. */
static void note_modules(const char *folder, uint32_t size, const char *unused) {
	struct path path = {path.text, ""};
	add(&path, folder, size);
	(void)unused;
	add_text(&path, "/gconv-modules");
	note_read(path.text);
	add_text(&path, ".d");
	const long found = SYSTEM(SYS_faccessat, AT_FDCWD, path.text, F_OK);
	wafpark_note(WAFPARK_LIST, found, 0, AT_FDCWD, path.text);
	if (found == 0)
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_WALK, "");
}

/* The modules are libraries. They are recorded as such when libc has loaded them. */
EXPORT void *iconv_open(const char *to, const char *from);
EXPORT void *iconv_open(const char *to, const char *from) {
	REAL(void *, iconv_open, (const char *, const char *))
	if (wafpark_watch)
		visit_folders(value_of("GCONV_PATH"), note_modules, NULL);
	wafpark_expect_loads(NULL);
	return real ? real(to, from) : (void *)-1;
}

/* ---- time zones: TZ may name a file */

HIDDEN void wafpark_note_zone(void) {
	const char *zone = value_of("TZ");
	zone += *zone == ':';
	if (!wafpark_watch || !*zone)
		return;
	if (*zone == '/') {
		if (!begins(zone, "/usr/share/zoneinfo/"))
			note_read(zone);
		return;
	}
	const char *folder = value_of("TZDIR");
	if (!*folder)
		return;
	struct path path = {path.text, ""};
	add_text(&path, folder);
	add_text(&path, "/");
	add_text(&path, zone);
	note_read(path.text);
}

EXPORT void tzset(void) {
	REAL(void, tzset, (void))
	wafpark_note_zone();
	if (real)
		real();
}

EXPORT time_t mktime(struct tm *date) {
	REAL(time_t, mktime, (struct tm *))
	wafpark_note_zone();
	return real ? real(date) : -1;
}

EXPORT time_t timelocal(struct tm *date) {
	REAL(time_t, timelocal, (struct tm *))
	wafpark_note_zone();
	return real ? real(date) : -1;
}

EXPORT size_t strftime(char *restrict text, size_t size, const char *restrict format, const struct tm *restrict date) {
	REAL(size_t, strftime, (char *restrict, size_t, const char *restrict, const struct tm *restrict))
	wafpark_note_zone();
	return real ? real(text, size, format, date) : 0;
}

EXPORT size_t strftime_l(char *restrict text, size_t size, const char *restrict format, const struct tm *restrict date, locale_t locale) {
	REAL(size_t, strftime_l, (char *restrict, size_t, const char *restrict, const struct tm *restrict, locale_t))
	wafpark_note_zone();
	return real ? real(text, size, format, date, locale) : 0;
}

EXPORT size_t wcsftime(wchar_t *restrict text, size_t size, const wchar_t *restrict format, const struct tm *restrict date) {
	REAL(size_t, wcsftime, (wchar_t *restrict, size_t, const wchar_t *restrict, const struct tm *restrict))
	wafpark_note_zone();
	return real ? real(text, size, format, date) : 0;
}
