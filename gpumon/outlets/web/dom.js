// Changes a page in place: what a reader has selected stays selected, and a screen reader keeps
// its place.

export const element = (id) => document.getElementById(id);

// Only the letters that differ are replaced.
export function setText(target, text) {
  const node = target.firstChild;
  if (node === null || node.nextSibling !== null || node.nodeType !== Node.TEXT_NODE) {
    target.textContent = text;
    return;
  }
  const old = node.data;
  if (old === text) return;
  const shorter = Math.min(old.length, text.length);
  let head = 0;
  while (head < shorter && old[head] === text[head]) head += 1;
  let tail = 0;
  while (tail < shorter - head && old.at(-1 - tail) === text.at(-1 - tail)) tail += 1;
  node.replaceData(head, old.length - head - tail, text.slice(head, text.length - tail));
}

export function setAttribute(target, name, value) {
  if (target.getAttribute(name) !== String(value)) target.setAttribute(name, value);
}

// Shows a text, or nothing at all where it is empty.
export function showText(target, text) {
  setText(target, text);
  target.hidden = text === "";
}

// A copy of a template's element, and its parts by class name.
export function copyOf(template) {
  const whole = template.content.firstElementChild.cloneNode(true);
  return { whole, part: (name) => whole.querySelector(`.${name}`) };
}

// The children of an element, one for each item, kept by its key: made once, then only updated.
export class Children {
  #kept = new Map(); // key -> what make gave: an object with its element, `whole`

  constructor(target, keyOf, make, update) {
    Object.assign(this, { target, keyOf, make, update });
  }

  draw(items) {
    const keys = new Set(items.map(this.keyOf));
    for (const [key, { whole }] of this.#kept) {
      if (keys.has(key)) continue;
      whole.remove();
      this.#kept.delete(key);
    }
    items.forEach((item, place) => {
      const key = this.keyOf(item);
      if (!this.#kept.has(key)) this.#kept.set(key, this.make(item));
      const child = this.#kept.get(key);
      this.#place(child.whole, this.target.children[place] ?? null);
      this.update(child, item);
    });
  }

  get(key) {
    return this.#kept.get(key);
  }

  values() {
    return this.#kept.values();
  }

  #place(node, there) {
    if (node === there) return;
    const focused = document.activeElement;
    if (node.isConnected && this.target.moveBefore) this.target.moveBefore(node, there);
    else this.target.insertBefore(node, there);
    // Where the browser cannot move an element with the keyboard's focus in it.
    if (focused !== document.activeElement) focused.focus({ preventScroll: true });
  }
}
