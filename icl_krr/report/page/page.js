"use strict";

// Each part with sliders contains its data: arrays in row-major order over named axes.
for (const part of document.querySelectorAll(".moved")) {
  const page = JSON.parse(part.querySelector("script").textContent);
  const at = { ...page.start };
  const decoded = {};

  function bytes(text) {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  }

  function offset(over, place) {
    return over.reduce((sum, axis) => sum * page.axes[axis].length + place[axis], 0);
  }

  function points(name) {
    decoded[name] ??= new Int16Array(bytes(page.curves[name].values).buffer);
    return decoded[name];
  }

  // The numbers called `name` at the slider positions; with `along`, at every place of that axis.
  function read(name, along) {
    const places = along ? page.axes[along].map((_, i) => ({ ...at, [along]: i })) : [at];
    return places.flatMap((place) => {
      if (name in page.numbers) {
        const entry = page.numbers[name];
        return [Number(entry.values[offset(entry.over, place)])];
      }
      const { over, size, together, scales } = page.curves[name];
      const start = offset(over, place) * size;
      const scale = scales[Math.floor(start / together)];
      return Array.from(points(name).subarray(start, start + size), (whole) => whole * scale);
    });
  }

  function heightOf(moving, value) {
    const shown = moving.log ? Math.log10(Math.max(value, 1e-300)) : value;
    const share = (shown - moving.limits[0]) / (moving.limits[1] - moving.limits[0]);
    return moving.y[0] + share * (moving.y[1] - moving.y[0]);
  }

  function line(moving) {
    if (moving.marker) {
      const x = moving.x[at[moving.marker]];
      return `M ${x} ${moving.y[0]} L ${x} ${moving.y[1]}`;
    }
    const values = read(moving.data, moving.along);
    const place = (x, i) => `${x} ${heightOf(moving, values[i % values.length]).toFixed(2)}`;
    return "M " + moving.x.map(place).join(" L ");
  }

  // Rows of the image are tokens, columns are places along the axis. The largest entry gets the
  // strongest colour.
  function picture(moving) {
    const columns = page.axes[moving.along].length;
    const values = read(moving.data, moving.along);
    const rows = values.length / columns;
    const most = Math.max(...values.map(Math.abs)) || 1;
    const colours = bytes(moving.colours);
    const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const colour = Math.round(127.5 * (1 + values[column * rows + row] / most));
        const pixel = 4 * (row * columns + column);
        pixels.data.set(colours.subarray(3 * colour, 3 * colour + 3), pixel);
        pixels.data[pixel + 3] = 255;
      }
    }
    context.putImageData(pixels, 0, 0);
    return canvas.toDataURL();
  }

  function draw() {
    for (const shown of part.querySelectorAll("output[data-axis], span[data-axis]")) {
      shown.textContent = page.axes[shown.dataset.axis][at[shown.dataset.axis]];
    }
    for (const cell of part.querySelectorAll("[data-number]")) {
      const entry = page.numbers[cell.dataset.number];
      const place = { ...at, ...JSON.parse(cell.dataset.at) };
      cell.textContent = entry.values[offset(entry.over, place)];
    }
    page.moving.forEach((moving, i) => {
      const drawn = document.getElementById(`${part.id}-moving-${i}`);
      if (moving.colours) {
        drawn.setAttribute("href", picture(moving));
        drawn.removeAttribute("xlink:href");
      } else {
        drawn.querySelector("path").setAttribute("d", line(moving));
      }
    });
  }

  function follow() {
    for (const slider of part.querySelectorAll("input")) {
      at[slider.dataset.axis] = Number(slider.value);
      slider.setAttribute("aria-valuetext", page.axes[slider.dataset.axis][slider.value]);
    }
    draw();
  }

  part.addEventListener("input", follow);
  window.addEventListener("pageshow", follow); // browsers may restore slider positions
  part.querySelector(".controls").hidden = false;
  follow();
}

// Only boxes that scroll can receive keyboard focus.
function stops() {
  for (const box of document.querySelectorAll(".scroll")) {
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  }
}

window.addEventListener("resize", stops);
stops();
