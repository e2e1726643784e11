// Shows the values under the pointer in the legends of all charts. Without it the legends keep the highest values.
(function () {
  "use strict";
  function short(value) {
    var units = ["", "k", "M", "G", "T"], unit = 0;
    while (Math.abs(value) >= 999.5 && unit < 4) { value /= 1000; unit += 1; }
    return Number(value.toPrecision(3)) + units[unit];
  }
  function bytes(value) {
    var units = ["", "K", "M", "G", "T"], unit = 0;
    while (value >= 1024 && unit < 4) { value /= 1024; unit += 1; }
    return Number(value.toPrecision(value >= 1000 ? 4 : 3)) + units[unit];
  }
  function two(value) { return (value < 10 ? "0" : "") + value; }
  function clock(seconds) {
    var whole = Math.round(seconds), days = Math.floor(whole / 86400);
    if (seconds < 100) { return seconds.toFixed(1) + " s"; }
    return (days ? days + " d " : "") + Math.floor(whole / 3600) % 24 + ":" + two(Math.floor(whole / 60) % 60) + ":" + two(whole % 60);
  }
  var text = {
    b: bytes,
    r: function (value) { return bytes(value) + "/s"; },
    s: function (value) { return short(value) + "/s"; },
    p: function (value) { return short(value) + "%"; },
    c: function (value) { return value.toFixed(2) + " : 1"; },
    n: short
  };
  var charts = [];
  document.querySelectorAll(".plot[data-end]").forEach(function (plot) {
    var figure = plot.parentNode, cursor = document.createElement("div");
    cursor.className = "cursor";
    cursor.hidden = true;
    plot.appendChild(cursor);
    charts.push({
      plot: plot, cursor: cursor, end: Number(plot.dataset.end), text: text[plot.dataset.unit],
      lists: JSON.parse(figure.querySelector("script").textContent),
      values: Array.from(figure.querySelectorAll(".v")).map(function (place) { return { place: place, most: place.textContent }; }),
      at: figure.querySelector(".at")
    });
  });
  function nearest(times, time) {
    var low = 0, high = times.length - 1, middle;
    while (low < high) {
      middle = (low + high) >> 1;
      if (times[middle] < time) { low = middle + 1; } else { high = middle; }
    }
    return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
  }
  function show(time) {
    charts.forEach(function (chart) {
      var times = chart.lists[0], at = nearest(times, time);
      // Runs that are shown together are not equally long.
      if (!times.length || time > times[times.length - 1] + chart.end / 50) { return rest(chart); }
      chart.cursor.hidden = false;
      chart.cursor.style.left = 100 * times[at] / chart.end + "%";
      chart.at.textContent = "at " + clock(times[at]);
      chart.values.forEach(function (value, number) {
        var now = chart.lists[number + 1][at];
        value.place.textContent = now === null ? "-" : chart.text(now);
      });
    });
  }
  function rest(chart) {
    chart.cursor.hidden = true;
    chart.at.textContent = "highest";
    chart.values.forEach(function (value) { value.place.textContent = value.most; });
  }
  charts.forEach(function (chart) {
    function follow(event) {
      var box = chart.plot.getBoundingClientRect();
      show(chart.end * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    }
    chart.plot.addEventListener("pointermove", follow);
    chart.plot.addEventListener("pointerdown", follow);
    chart.plot.addEventListener("pointerleave", function () { charts.forEach(rest); });
  });
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  });
})();
