"""A subject that reads its answers from a file, and misbehaves at one of them. It needs nothing, so it starts at once.

python scripted.py ANSWERS HOW STEP      # the header is step 0
"""

import os
import signal
import sys
import time

ALWAYS_S = 600.0


def misbehave(how: str, answer: str) -> None:
    """In place of an answer."""
    match how:
        case "raises SIGSEGV" | "raises SIGKILL" | "raises SIGABRT":
            os.kill(os.getpid(), getattr(signal, how.split()[1]))
        case "exits with 0" | "exits with 3":
            sys.stderr.write("scripted: cannot go on\n")
            sys.stderr.flush()
            os._exit(int(how[-1]))
        case "exits within a line":
            say(answer[:10])
            os._exit(1)
        case "hangs":
            time.sleep(ALWAYS_S)
        case "hangs within a line":
            say(answer[:10])
            time.sleep(ALWAYS_S)
        case "talks for ever":
            while True:
                say("la" * 1_000)
        case "closes stdout":
            os.close(1)
            time.sleep(ALWAYS_S)
        case "says hello":
            say("hello\n")
        case "answers with a list":
            say("[]\n")
        case "answers with an unknown key":
            say('{"outcome":"ok","colour":"red"}\n')
        case "answers with an unknown outcome":
            say('{"outcome":"perhaps"}\n')
        case "answers twice":
            say(answer + answer)
        case "writes much to stderr":
            sys.stderr.write("x" * 1_000_000)
            say(answer)
        case _:
            say(answer)


def say(text: str) -> None:
    """On stdout, all of it."""
    left = text.encode()
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    answers, how, at = sys.argv[1:4]
    with open(answers, encoding="utf-8") as file:
        lines = file.readlines()
    for number, line in enumerate(lines):
        sys.stdin.readline()
        if number == int(at):
            misbehave(how, line)
        else:
            say(line)
