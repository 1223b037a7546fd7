"""A binary heap over two arrays, keys and items, in plain loops: interpreted or compiled, the same arrangement."""

from typing import Any


def sift_down(keys: Any, items: Any, size: int) -> None:
    """Restores a heap whose root is new."""
    key = keys[0]
    item = items[0]
    place = 0
    child = 1
    last = size - 1
    while child < last:
        child += keys[child + 1] < keys[child]
        least = keys[child]
        if least >= key:
            break
        keys[place] = least
        items[place] = items[child]
        place = child
        child = 2 * place + 1
    if child == last and keys[child] < key:
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
    keys[place] = key
    items[place] = item


def sift_down_evenly(keys: Any, items: Any, size: int) -> None:
    """`sift_down` for machine code: it always goes to a leaf, without a branch that a processor could mispredict.

    Below the place where the key belongs what is carried is what was there, which is not less than the next: so the
    same values end in the same places, equal ones too.
    """
    key = keys[0]
    item = items[0]
    place = 0
    child = 1
    last = size - 1
    while 0 < child < last:  # it is always above 0: said so that the compiler need not think of places from the end
        child += keys[child + 1] < keys[child]
        least = keys[child]
        other = items[child]
        rises = least < key
        keys[place] = least if rises else key
        items[place] = other if rises else item
        key = key if rises else least
        item = item if rises else other
        place = child
        child = 2 * place + 1
    if child == last and keys[child] < key:
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
    keys[place] = key
    items[place] = item


def sift_up(keys: Any, items: Any, place: int) -> None:
    """Restores a heap whose entry at `place`, its last, is new."""
    key = keys[place]
    item = items[place]
    while place > 0:
        parent = (place - 1) // 2
        if keys[parent] <= key:
            break
        keys[place] = keys[parent]
        items[place] = items[parent]
        place = parent
    keys[place] = key
    items[place] = item
