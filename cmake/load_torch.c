// Loads the library named on the command line, as a program of ours would, and prints the folder that
// its libcupti came from (nothing for a CPU build of torch). Compiled and run by ./bootstrap.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static int print_folder(struct dl_phdr_info* info, size_t size, void* unused) {
  (void)size, (void)unused;
  const char* name = strstr(info->dlpi_name, "/libcupti.so");
  if (name) printf("%.*s\n", (int)(name - info->dlpi_name), info->dlpi_name);
  return name != NULL;
}

int main(int argc, char** argv) {
  if (argc != 2 || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) {
    fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: load_torch LIBRARY");
    return 1;
  }
  dl_iterate_phdr(print_folder, NULL);
  return 0;
}
