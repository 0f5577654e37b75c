/* The clock, and the summary of many times: all programs here that measure use this. */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

/* Microseconds since some time. */
static double read_clock(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static double microseconds(struct timeval time) {
	return 1e6 * (double)time.tv_sec + (double)time.tv_usec;
}

static int compare_times(const void *first, const void *second) {
	double a = *(const double *)first, b = *(const double *)second;

	return (a > b) - (a < b);
}

/* The times get sorted. */
static double median(double *walls, size_t count) {
	qsort(walls, count, sizeof *walls, compare_times);
	return (walls[(count - 1) / 2] + walls[count / 2]) / 2;
}

/* Writes what one of so many took, as JSON; the times get sorted. */
static inline bool write_times(const char *path, double *walls, size_t count, const struct rusage *used) {
	FILE *result = fopen(path, "w");

	if (!result)
		return false;
	double middle = median(walls, count), most = walls[(count - 1) * 99 / 100];
	double user = microseconds(used->ru_utime) / (double)count, system = microseconds(used->ru_stime) / (double)count;
	fprintf(result, "{\"wall\": %.3f, \"p99\": %.3f, \"user\": %.3f, \"system\": %.3f}\n", middle, most, user, system);
	return fclose(result) == 0;
}
