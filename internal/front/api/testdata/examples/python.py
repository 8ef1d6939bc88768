# Checks and runs examples one after another in one process. Each line of the input is "check" or "run" and the path of
# an example. The values that an example prints are written as JSON, one on each line. The line after them begins with
# the record separator and says whether the example succeeded.
import json
import sys


def write(*values):
    for value in values:
        sys.stdout.write(json.dumps(value, default=str) + "\n")


for line in sys.stdin:
    action, path = line.rstrip("\n").split(" ", 1)
    result = "ok"
    try:
        with open(path, encoding="utf-8") as file:
            program = compile(file.read(), path, "exec")
        if action == "run":
            exec(program, {"__name__": "__main__", "print": write})
    except Exception as error:
        result = repr(error).replace("\n", " ")
    sys.stdout.write("\x1e" + result + "\n")
    sys.stdout.flush()
