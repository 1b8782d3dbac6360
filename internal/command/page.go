package command

import (
	"github.com/spf13/pflag"

	"sluice/internal/dataplane"
	"sluice/internal/web"
)

func addPageFlag(flags *pflag.FlagSet, page *bool) {
	flags.BoolVar(page, "page", true, "Show a page about the proxy and its Services to browsers, at / of --metrics-bind-address.")
}

// page is what browsers are shown.
func (p *proxy) page() *web.Page {
	return web.New(web.Options{
		Engine:  p.engine,
		Status:  p.reporter().Report,
		Explain: p.explainer().Explain,
		Traffic: dataplane.CountOf(p.kernel),
		Logger:  p.logger.WithName("page"),
		Clock:   p.clock,
	})
}
