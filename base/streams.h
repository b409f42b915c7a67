/*
 * streams: stdin, stdout and stderr as the program finds them and leaves them.
 */
#ifndef BASE_STREAMS_H
#define BASE_STREAMS_H

/*
 * First of all in main: a stream that is closed is /dev/null, open for reading. Else the next file or pipe
 * that is opened would be in its place, and the table go there; a write to what is open for reading
 * fails, and is said.
 */
void streams_hold(void);

/*
 * A full disk behind stdout is no success: FAIL_FILE, "WHAT could not be written to standard output: " and
 * the system's words. `kept`: a file that has it all the same, NULL: none.
 */
int streams_written(const char *what, const char *kept);

#endif
