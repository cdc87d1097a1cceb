"""Creates keys and files of Crypt4GH with the package crypt4gh of the GA4GH community.

Arguments: a command, and its arguments.
"""

import os
import sys

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from crypt4gh import SEGMENT_SIZE, header, lib
from crypt4gh.keys import c4gh, get_private_key, get_public_key, kdf

PASSPHRASE = "a passphrase of several words"


def keys(directory, *names):
    """Writes key pairs, `NAME.sec` and `NAME.pub`. Keys have a passphrase unless NAME starts with `plain`; `pbkdf2..` use PBKDF2."""
    for name in names:
        secret, public = f"{directory}/{name}.sec", f"{directory}/{name}.pub"
        c4gh.generate(secret, public, None if name.startswith("plain") else PASSPHRASE.encode(), b"for a test")
        if name.startswith("pbkdf2"):
            relock(secret, b"pbkdf2_hmac_sha256", 1000)


def relock(path, method, rounds):
    """Encrypts a key again, by another method that the format allows."""
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
    """Encrypts a file for the given public keys."""
    with open(plain, "rb") as source, open(encrypted, "wb") as out:
        lib.encrypt([(0, os.urandom(32), get_public_key(reader)) for reader in readers], source, out)


def decrypt(encrypted, plain, secret):
    """Decrypts a file."""
    with open(encrypted, "rb") as source, open(plain, "wb") as out:
        lib.decrypt([(0, get_private_key(secret, lambda: PASSPHRASE), None)], source, out)


def rearrange(encrypted, out, secret, start, end):
    """Writes a file that shows a range of another by an edit list, with the segments that the package keeps."""
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
    command, *args = sys.argv[1:]
    {"keys": keys, "encrypt": encrypt, "decrypt": decrypt, "rearrange": rearrange}[command](*args)
