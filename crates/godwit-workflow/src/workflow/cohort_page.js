"use strict";
const body = document.querySelector("#samples tbody");
const rows = [...body.rows];
const texts = rows.map((row) => row.cells[0].textContent.toLowerCase());
const count = document.querySelector("#count");
function filter() {
  const words = document.querySelector("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, at) => {
    row.hidden = !words.every((word) => texts[at].includes(word));
    shown += row.hidden ? 0 : 1;
  });
  count.textContent = `${shown} of ${rows.length} samples`;
}
let sorted = { column: -1, direction: 1 };
function sort(column) {
  sorted = { column, direction: sorted.column === column ? -sorted.direction : 1 };
  const numbers = rows.map((row) => Number.parseFloat(row.cells[column].textContent));
  const order = rows.map((_, at) => at);
  order.sort((one, other) => {
    if (column === 0) return sorted.direction * (texts[one] < texts[other] ? -1 : 1);
    // Samples without the value are last in both directions.
    const missing = Number.isNaN(numbers[one]) - Number.isNaN(numbers[other]);
    return missing || sorted.direction * (numbers[one] - numbers[other]) || one - other;
  });
  body.append(...order.map((at) => rows[at]));
}
document.querySelector("#search").addEventListener("input", filter);
document.querySelectorAll("#samples th button").forEach((button, column) => {
  button.addEventListener("click", () => sort(column));
});
filter();
