"""A binary heap over two arrays, keys and items, in plain loops: interpreted or compiled, the same comparisons."""

from typing import Any


def sift_down(keys: Any, items: Any, size: int) -> None:
    """Restores a heap whose root is new."""
    key = keys[0]
    item = items[0]
    place = 0
    child = 1
    last = size - 1
    while child < last:
        child += keys[child + 1] < keys[child]  # adding the comparison compiles to no branch: none can be mispredicted
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
