"""Threads that stand still in Python, each in its own way. Says "ready", then waits to be killed."""

import socket
import threading
import time


def in_lock(lock):
    lock.acquire()  # SITE: lock


def lookup(key):
    return {0: 1}[key]  # SITE: raise


def in_socket(end):
    try:
        lookup(2)
    finally:
        end.recv(1)  # SITE: socket


def deep(depth, then, *args):
    return deep(depth - 1, then, *args) if depth else then(*args)


def in_sleep(epoch, below, none, large, text):
    time.sleep(1000)  # SITE: sleep


def main():
    lock = threading.Lock()
    lock.acquire()
    ours, theirs = socket.socketpair()
    for target, args in ((in_lock, (lock,)), (deep, (200, in_socket, ours))):
        threading.Thread(target=target, args=args, daemon=True).start()
    print("ready", flush=True)
    in_sleep(3, -7, 0, 1 << 40, "3")
    del theirs


step = 5
main()
