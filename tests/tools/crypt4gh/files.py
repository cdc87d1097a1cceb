"""Keys and files of Crypt4GH by the package that GA4GH's community keeps.

Arguments: what to do, and words for it.
"""

import os
import sys

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from crypt4gh import SEGMENT_SIZE, header, lib
from crypt4gh.keys import c4gh, get_private_key, get_public_key, kdf

PASSPHRASE = "a passphrase of several words"


def keys(directory, *names):
    """Pairs of keys, `NAME.sec` and `NAME.pub`; those of other names than `plain..` are locked, `pbkdf2..` by PBKDF2."""
    for name in names:
        secret, public = f"{directory}/{name}.sec", f"{directory}/{name}.pub"
        c4gh.generate(secret, public, None if name.startswith("plain") else PASSPHRASE.encode(), b"for a test")
        if name.startswith("pbkdf2"):
            relock(secret, b"pbkdf2_hmac_sha256", 1000)


def relock(path, method, rounds):
    """Locks a key again, in a way that others may have."""
    key, salt, nonce = get_private_key(path, lambda: PASSPHRASE), os.urandom(16), os.urandom(12)
    lock = kdf.derive_key(method, PASSPHRASE.encode(), salt, rounds)
    string = c4gh.encode_string
    locked = string(nonce + ChaCha20Poly1305(lock).encrypt(nonce, bytes(key), None))
    options = string(rounds.to_bytes(4, "big") + salt)
    text = c4gh.b64encode(c4gh.MAGIC_WORD + string(method) + options + string(b"chacha20_poly1305") + locked)
    os.chmod(path, 0o600)
    with open(path, "wb") as out:
        out.write(b"-----BEGIN CRYPT4GH PRIVATE KEY-----\n" + text + b"\n-----END CRYPT4GH PRIVATE KEY-----\n")


def encrypt(plain, encrypted, *readers):
    """Encrypts a file for some readers."""
    with open(plain, "rb") as source, open(encrypted, "wb") as out:
        lib.encrypt([(0, os.urandom(32), get_public_key(reader)) for reader in readers], source, out)


def decrypt(encrypted, plain, secret):
    """Decrypts a file."""
    with open(encrypted, "rb") as source, open(plain, "wb") as out:
        lib.decrypt([(0, get_private_key(secret, lambda: PASSPHRASE), None)], source, out)


def rearrange(encrypted, out, secret, start, end):
    """Makes a file that shows a part of another, by a list of edits; all its segments stay."""
    key = get_private_key(secret, lambda: PASSPHRASE)
    mine = [(0, key, c4gh.sodium.derive_pk(key))]
    with open(encrypted, "rb") as source, open(out, "wb") as made:
        start, end = int(start), int(end)
        packets, keeps = header.rearrange(header.parse(source), mine, offset=start, span=end - start)
        made.write(header.serialize(packets))
        while segment := source.read(SEGMENT_SIZE + 28):
            if next(keeps):
                made.write(segment)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    {"keys": keys, "encrypt": encrypt, "decrypt": decrypt, "rearrange": rearrange}[what](*words)
