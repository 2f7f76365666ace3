'use strict';
// Draws every chart of #chart-data (written by series.cpp) with Chart.js.
(() => {
  const colours = ['#2454a6', '#d9622b', '#2a8a5c', '#7a4fb5'];
  const soft = '#667085';

  const bytesText = (value) => {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit + 1 < units.length) { value /= 1024; ++unit; }
    return (unit === 0 ? value : value.toFixed(value < 10 ? 2 : 1)) + ' ' + units[unit];
  };
  const numberText = (value) =>
    value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toLocaleString('en', {maximumSignificantDigits: 5});
  const textOf = (chart) => (chart.unit === 'bytes' ? bytesText : numberText);

  // Mean of the points up to `half` steps away on either side.
  const runningMean = (points, half) => points.map((point, i) => {
    const near = points.slice(Math.max(0, i - half), i + half + 1);
    return {x: point.x, y: near.reduce((sum, p) => sum + p.y, 0) / near.length};
  });

  const dataset = (line, colour, extra) => Object.assign({
    label: line.label, data: line.points, borderColor: colour, backgroundColor: colour,
    borderWidth: 2, pointHitRadius: 8, pointHoverRadius: 4,
    pointRadius: line.points.length < 40 && line.points.length !== 2 ? 3 : 0,
  }, extra);

  const datasets = (chart) => chart.lines.flatMap((line, i) => {
    const colour = colours[i % colours.length];
    if (line.reference) return [dataset(line, soft, {borderDash: [6, 5], borderWidth: 1.5, pointRadius: 0})];
    if (!chart.smooth || line.points.length < 100) return [dataset(line, colour)];
    const half = Math.ceil(line.points.length / 100);
    return [
      dataset({label: line.label, points: runningMean(line.points, half)}, colour),
      dataset({label: line.label + ', each step', points: line.points}, colour + '55', {borderWidth: 1}),
    ];
  });

  const axis = (text, format) => ({
    title: {display: text !== '', text: text, color: soft}, grid: {color: '#edeff3', borderColor: '#d0d5dd'},
    ticks: {color: soft, maxTicksLimit: 8, callback: format},
  });

  // Ticks of bytes at powers of two; elsewhere Chart.js chooses round decimal ones.
  const valueAxis = (chart) => {
    const made = Object.assign({type: 'linear', beginAtZero: chart.from_zero}, axis('', textOf(chart)));
    const most = Math.max(...chart.lines.flatMap((line) => line.points.map((point) => point.y)));
    if (chart.unit === 'bytes' && most > 0) made.ticks.stepSize = 2 ** Math.ceil(Math.log2(most / 6));
    return made;
  };

  const draw = (chart, canvas) => new Chart(canvas, {
    type: 'line',
    data: {datasets: datasets(chart)},
    options: {
      animation: false, parsing: false, maintainAspectRatio: false,
      interaction: {mode: 'nearest', axis: 'x', intersect: false},
      scales: {
        x: Object.assign({type: 'linear'}, axis('step', (value) => value.toLocaleString('en'))),
        y: valueAxis(chart),
      },
      plugins: {
        legend: {
          display: chart.lines.length > 1, position: 'bottom',
          labels: {usePointStyle: true, pointStyle: 'line', color: '#1d2433', filter: (item) => !item.text.endsWith(', each step')},
        },
        tooltip: {callbacks: {
          title: (items) => 'step ' + items[0].parsed.x.toLocaleString('en'),
          label: (item) => item.dataset.label + ': ' + textOf(chart)(item.parsed.y),
        }},
      },
    },
  });

  const element = (name, parent, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return parent.appendChild(made);
  };

  const parent = document.getElementById('charts');
  JSON.parse(document.getElementById('chart-data').textContent).forEach((chart, i) => {
    const card = element('section', parent, i === 0 ? 'card wide' : 'card');
    element('h2', card, '', chart.title);
    element('p', card, 'caption', chart.caption);
    draw(chart, element('canvas', element('div', card, 'plot')));
  });
})();
