// Make elements. Text always goes in as text: nothing that the server sends is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Set text only where it differs: most of a page is the same from sample to sample. */
export function text(element, value) {
  const wanted = String(value);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function attribute(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const wanted = value === true ? "" : String(value);
  if (element.getAttribute(name) !== wanted) element.setAttribute(name, wanted);
}

/** Make a list's elements fit its items, reusing those that are there. */
export function each(parent, items, make, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, index) => {
    if (index >= parent.children.length) parent.append(make(item, index));
    update(parent.children[index], item, index);
  });
}

/** Follow an element's size: asking for it between two changes would make the browser lay the page out each time. */
export function roomOf(element, changed) {
  const room = { width: element.clientWidth, height: element.clientHeight };
  new ResizeObserver(() => {
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (width === room.width && height === room.height) return;
    Object.assign(room, { width, height });
    changed();
  }).observe(element);
  return room;
}

/** Let Enter and the space bar do what a click does, for elements that are no buttons by birth. */
export function pressable(element, act) {
  element.addEventListener("click", act);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      act(event);
    }
  });
  return element;
}
