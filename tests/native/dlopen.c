/* Loads the plugin as NCCL does, without NCCL, and checks what NCCL relies on before any traffic.
 *
 *   dlopen LIBRARY tables     each table: name, functions that must be there, functions that must not
 *   dlopen LIBRARY devices    init, every field of every device's properties, finalize
 *   dlopen LIBRARY init       each init: result, and each log line with its level
 *
 * Answers on stdout and exit 0, or an error on stderr and exit 1. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { SUCCESS = 0, INVALID_USAGE = 5, WARN = 2, POISON = 0xAA };
enum { NAME = 0, INIT = 1, DEVICES = 2, GET_PROPERTIES = 3, FINALIZE = 20 };

struct field {
    const char *name;
    size_t offset, bytes;
};

struct version {
    const char *symbol;
    size_t slots;
    int modern; /* init makes a context, which finalize ends */
    const int *nulls; /* slots that must be NULL, closed by 0: slot 0 is the name */
    const struct field *fields;
    size_t field_count, properties_bytes;
};

#include "versions.h" /* from abi.py */

typedef void (*logger_t)(int, unsigned long, const char *, int, const char *, ...);

static int show_log, warnings;
static char last_warning[1024];

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
    char text[sizeof last_warning];
    va_list values;
    (void)flags, (void)file, (void)line;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (show_log) printf("level %d: %s\n", level, text);
    if (level != WARN) return;
    warnings++;
    memcpy(last_warning, text, sizeof text);
}

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\nlast warning: %s\n", last_warning);
    exit(1);
}

static void check_table(void **table, const struct version *version) {
    const int *null = version->nulls;
    if (strcmp(table[NAME], "busbw")) fail("%s: the name is %s", version->symbol, (const char *)table[NAME]);
    for (size_t slot = 1; slot < version->slots; slot++) {
        int must_be_null = *null == (int)slot;
        if (must_be_null) null++;
        if (must_be_null && table[slot]) fail("%s: function %zu is not NULL", version->symbol, slot);
        if (!must_be_null && !table[slot]) fail("%s: function %zu is NULL", version->symbol, slot);
    }
}

static int init(void **table, const struct version *version, void **context) {
    int traffic_class = -1;
    if (!version->modern) return ((int (*)(logger_t))table[INIT])(logger);
    return ((int (*)(void **, uint64_t, int *, logger_t, void *))table[INIT])(context, 42, &traffic_class, logger, NULL);
}

static int get_properties(void **table, int device, unsigned char *props) {
    return ((int (*)(int, void *))table[GET_PROPERTIES])(device, props);
}

static void check_properties(void **table, const struct version *version, int device) {
    unsigned char props[256], poison[8];
    const char *name;
    memset(props, POISON, sizeof props);
    memset(poison, POISON, sizeof poison);
    if (get_properties(table, device, props)) fail("%s: getProperties of device %d", version->symbol, device);
    for (size_t i = 0; i < version->field_count; i++) {
        const struct field *field = &version->fields[i];
        int32_t value;
        memcpy(&value, props + field->offset, sizeof value);
        if (!memcmp(props + field->offset, poison, field->bytes))
            fail("%s: %s of device %d is not set", version->symbol, field->name, device);
        if (!strcmp(field->name, "speed") && value <= 0) fail("%s: device %d has the speed %d", version->symbol, device, value);
    }
    for (size_t i = version->properties_bytes; i < sizeof props; i++)
        if (props[i] != POISON) fail("%s: byte %zu, behind the structure, is written", version->symbol, i);
    memcpy(&name, props, sizeof name);
    if (!*name) fail("%s: device %d has an empty name", version->symbol, device);
}

static int check_devices(void **table, const struct version *version) {
    unsigned char props[256];
    int found = 0, before = warnings;
    if (((int (*)(int *))table[DEVICES])(&found) || found <= 0) fail("%s: %d devices", version->symbol, found);
    for (int device = 0; device < found; device++) check_properties(table, version, device);
    if (warnings != before) fail("%s: a warning where nothing is wrong", version->symbol);
    if (get_properties(table, found, props) != INVALID_USAGE) fail("%s: a device too many is none", version->symbol);
    if (get_properties(table, -1, props) != INVALID_USAGE) fail("%s: device -1 is none", version->symbol);
    if (warnings != before + 2) fail("%s: %d warnings for two wrong devices", version->symbol, warnings - before);
    if (strncmp(last_warning, "busbw: no device -1", 19)) fail("%s: the warning does not say what is wrong", version->symbol);
    return found;
}

static int use(void **table, const struct version *version) {
    void *contexts[2] = {NULL, NULL};
    int found;
    for (size_t comm = 0; comm < COUNT(contexts); comm++)
        if (init(table, version, &contexts[comm]) || (version->modern && !contexts[comm]))
            fail("%s: init of communicator %zu", version->symbol, comm);
    found = check_devices(table, version);
    for (size_t comm = 0; version->modern && comm < COUNT(contexts); comm++)
        if (((int (*)(void *))table[FINALIZE])(contexts[comm])) fail("%s: finalize of communicator %zu", version->symbol, comm);
    return found;
}

int main(int argc, char **argv) {
    void *library, *context, **tables[COUNT(versions)];
    int found = 0;
    if (argc != 3) fail("usage: dlopen LIBRARY tables|devices|init");
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fail("%s", dlerror());
    show_log = !strcmp(argv[2], "init");
    for (size_t at = 0; at < COUNT(versions); at++) {
        const struct version *version = &versions[at];
        tables[at] = dlsym(library, version->symbol);
        if (!tables[at]) fail("%s", dlerror());
        if (show_log) {
            printf("%s: %d\n", version->symbol, init(tables[at], version, &context));
        } else if (!strcmp(argv[2], "devices")) {
            int before = found;
            found = use(tables[at], version);
            if (at && found != before) fail("the versions count devices differently");
        } else {
            check_table(tables[at], version);
            printf("%s: %zu entries\n", version->symbol, version->slots);
        }
    }
    if (found) printf("%d devices\n", found);
    /* The transport's threads may outlive the last communicator, with which NCCL closes the library. */
    dlclose(library);
    if (!dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD)) fail("dlclose unloads the library: it is not linked with -z nodelete");
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    for (size_t at = 0; at < COUNT(versions); at++)
        if (!library || dlsym(library, versions[at].symbol) != tables[at]) fail("opened again, it has other tables");
    return 0;
}
