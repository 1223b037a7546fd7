"""A binary heap over two arrays, keys and items, in plain loops: interpreted or compiled, the same comparisons."""

from typing import Any


def sift_down(keys: Any, items: Any, size: int) -> None:
    """Restores a heap whose root is new."""
    key = keys[0]
    item = items[0]
    place = 0
    child = 1
    while child < size:
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
        child = 2 * place + 1
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
