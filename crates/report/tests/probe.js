// Runs at the end of a page under test and tells the frame around it what is wrong with it.
(function () {
  "use strict";
  var seen = { errors: [], overlapping: [], beyond: [], faint: [], silent: [] };
  addEventListener("error", function (event) { seen.errors.push(event.message); });
  function texts(places) { return Array.from(places).map(function (place) { return place.textContent; }).join("|"); }
  function isShown(element) { var box = element.getBoundingClientRect(); return box.width > 1 && box.height > 1; }
  function point(plot, kind) {
    var box = plot.getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent(kind, { clientX: box.left + box.width / 2, clientY: box.top + 5, bubbles: true }));
  }
  function scrolls(element) { return element.closest(".scroll"); }

  // Labels of an axis must not lie on each other.
  function overlapping() {
    document.querySelectorAll(".plot").forEach(function (plot) {
      [".x", ".y"].forEach(function (kind) {
        var boxes = Array.from(plot.querySelectorAll(kind)).filter(isShown).map(function (label) { return label.getBoundingClientRect(); });
        boxes.forEach(function (one, at) {
          boxes.slice(at + 1).forEach(function (other) {
            if (one.left < other.right + 2 && other.left < one.right + 2 && one.top < other.bottom && other.top < one.bottom) {
              seen.overlapping.push(plot.parentNode.textContent.slice(0, 60) + kind);
            }
          });
        });
      });
    });
  }

  // Nothing but what scrolls within itself is wider than the window.
  function beyond() {
    var width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth > width) { seen.beyond.push("the page: " + document.documentElement.scrollWidth); }
    document.querySelectorAll("body *").forEach(function (element) {
      var box = element.getBoundingClientRect();
      if (isShown(element) && !scrolls(element) && (box.right > width + 0.5 || box.left < -0.5)) {
        seen.beyond.push(element.tagName + "." + element.className + " " + element.textContent.slice(0, 30));
      }
    });
  }

  function parts(colour) { return colour.match(/[\d.]+/g).map(Number); }
  function brightness(colour) {
    var linear = parts(colour).slice(0, 3).map(function (part) {
      part /= 255;
      return part <= 0.03928 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }
  function contrast(one, other) {
    var both = [brightness(one), brightness(other)].sort(function (a, b) { return b - a; });
    return (both[0] + 0.05) / (both[1] + 0.05);
  }
  function background(element) {
    for (; element; element = element.parentElement) {
      var colour = getComputedStyle(element).backgroundColor;
      if (parts(colour)[3] !== 0) { return colour; }
    }
    return "rgb(255, 255, 255)";
  }
  // Letters must stand out from what is behind them, and colours in legends, too.
  function faint() {
    document.querySelectorAll("body *:not(script):not(svg *)").forEach(function (element) {
      var hasText = Array.from(element.childNodes).some(function (node) { return node.nodeType === 3 && node.data.trim(); });
      if (!isShown(element) || !(hasText || element.tagName === "I")) { return; }
      var ratio = contrast(getComputedStyle(element).color, element.tagName === "I" ? background(element.parentElement) : background(element));
      if (ratio < (hasText ? 4.5 : 2.4)) { seen.faint.push(element.tagName + "." + element.className + " " + ratio.toFixed(2)); }
    });
  }

  // Who cannot see a picture hears what it shows; heads of tables say of what.
  function silent() {
    document.querySelectorAll("svg").forEach(function (svg) {
      var told = (svg.getAttribute("aria-labelledby") || "").split(" ").map(function (id) { return document.getElementById(id); });
      if (told.length < 2 || told.some(function (one) { return !one || one.textContent.length < 5; })) { seen.silent.push(svg.outerHTML.slice(0, 80)); }
    });
    document.querySelectorAll("th:not([scope]), table:not(:has(caption))").forEach(function (one) { seen.silent.push(one.outerHTML.slice(0, 80)); });
    var last = 0;
    document.querySelectorAll("h1, h2, h3").forEach(function (head) {
      var level = Number(head.tagName[1]);
      if (level > last + 1) { seen.silent.push("a level is left out before " + head.textContent); }
      last = level;
    });
  }

  addEventListener("load", function () {
    var plots = document.querySelectorAll(".plot[data-end]"), values = document.querySelectorAll(".v");
    seen.width = innerWidth;
    seen.paper = getComputedStyle(document.body).backgroundColor;
    seen.charts = plots.length;
    seen.rest = texts(values);
    point(plots[0], "pointermove");
    seen.pointed = texts(values);
    seen.at = document.querySelector(".at").textContent;
    beyond();
    point(plots[0], "pointerleave");
    seen.left = texts(values);
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });
    overlapping();
    beyond();
    faint();
    silent();
    seen.fetched = performance.getEntriesByType("resource").map(function (one) { return one.name; });
    parent.postMessage(JSON.stringify(seen), "*");
  });
})();
