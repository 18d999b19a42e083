# The command redlatch and nothing else: no shell, and no COMMAND for `redlatch run`. Use it as it is
# for admit, doctor, list and the like, or copy the program into an image of your own:
#
#	COPY --from=redlatch /usr/bin/redlatch /usr/bin/redlatch
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -ldflags="-s -w" -o /redlatch ./cmd/redlatch

FROM gcr.io/distroless/static-debian12:nonroot
COPY LICENSE /usr/share/doc/redlatch/LICENSE
COPY --from=build /redlatch /usr/bin/redlatch
ENTRYPOINT ["/usr/bin/redlatch"]
