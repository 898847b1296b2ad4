document.querySelectorAll("script[type='application/json'][data-chart]").forEach((spec) => {
  const place = document.getElementById(spec.dataset.chart);
  const actions = { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(place, JSON.parse(spec.textContent), { renderer: "svg", actions })
    .catch((error) => { place.textContent = "The chart could not be drawn: " + error; });
});
