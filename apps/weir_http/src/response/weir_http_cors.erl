%% @doc CORS: which pages of other origins may use a route (the Fetch standard, 3.2).
%%
%% ```
%% {"/api/*path", api, [], #{cors => #{origins => [<<"https://example.org">>], credentials => true}}}
%% '''
%%
%% The server answers preflight requests from the option of the route that serves the requested method, and adds the
%% CORS fields to each response of the route, including failures. The handler still has to authorise requests: CORS
%% only controls which pages may read the response.
-module(weir_http_cors).

-export([new/1]).
-export([fields/2]).
-export([is_preflight/1]).
-export([preflight/2]).

-export_type([options/0, cors/0]).

-type options() :: #{
    origins := any | [binary()],
    headers => any | [binary()],
    expose => [binary()],
    credentials => boolean(),
    max_age => non_neg_integer()
}.
%% `origins': origins whose pages may read responses, compared byte by byte with the browser's `Origin', or `any'.
%% `headers' (`[]'): request fields that a page may set, or `any'.
%% `expose' (`[]'): response fields that a page may read.
%% `credentials' (`false'): whether browsers send cookies and other credentials. Not allowed with `any' origin, since
%% any site could then act for users who are logged in.
%% `max_age' (600): seconds for which browsers may cache a preflight response.

-record(cors, {
    origins :: any | [binary()],
    headers :: any | binary(),
    expose :: binary(),
    credentials :: boolean(),
    max_age :: binary()
}).

-opaque cors() :: #cors{}.

-define(METHOD, <<"access-control-request-method">>).
-define(HEADERS, <<"access-control-request-headers">>).

%% @private
%% @doc Checks options, and prepares them for use with each request.
-spec new(term()) -> {ok, cors()} | {error, Value :: term(), Allowed :: string()}.
new(#{origins := any, credentials := true} = Options) ->
    {error, Options, "a list of origins with credentials => true: any site could act for users who are logged in"};
new(#{origins := Origins} = Options) ->
    case [Option || Option <- maps:to_list(Options), not is_option(Option)] of
        [] ->
            {ok, #cors{
                origins = Origins,
                headers = joined(maps:get(headers, Options, [])),
                expose = joined(maps:get(expose, Options, [])),
                credentials = maps:get(credentials, Options, false),
                max_age = integer_to_binary(maps:get(max_age, Options, 600))
            }};
        [Wrong = {Name, _} | _] ->
            {error, Wrong, allowed(Name)}
    end;
new(Wrong) ->
    {error, Wrong, "a map with origins => any, or a list of origins"}.

joined(any) -> any;
joined(Names) -> iolist_to_binary(lists:join(", ", Names)).

is_option({origins, any}) -> true;
is_option({origins, Origins}) -> is_list(Origins) andalso lists:all(fun is_origin/1, Origins);
is_option({headers, any}) -> true;
is_option({headers, Names}) -> is_names(Names);
is_option({expose, Names}) -> is_names(Names);
is_option({credentials, Credentials}) -> is_boolean(Credentials);
is_option({max_age, Seconds}) -> is_integer(Seconds) andalso Seconds >= 0;
is_option(_) -> false.

%% In the form that browsers send: any other form would never match.
is_origin(<<"null">>) ->
    true;
is_origin(Origin) when is_binary(Origin) ->
    re:run(Origin, "^[a-z][a-z0-9+.-]*://[^/?#A-Z\\s]+$", [dollar_endonly]) =/= nomatch;
is_origin(_) ->
    false.

is_names(Names) ->
    is_list(Names) andalso
        lists:all(
            fun(Name) -> is_binary(Name) andalso re:run(Name, "^[A-Za-z0-9_-]+$", [dollar_endonly]) =/= nomatch end,
            Names
        ).

allowed(origins) -> "any, or a list of origins such as <<\"https://example.org\">>, in lower case and without a path";
allowed(headers) -> "any, or a list of field names";
allowed(expose) -> "a list of field names";
allowed(credentials) -> "true or false";
allowed(max_age) -> "seconds from 0 on";
allowed(_) -> "unknown option; valid: origins, headers, expose, credentials, max_age".

%% @private
%% @doc Returns the CORS fields of the response to a request.
-spec fields(weir_http_request:request(), cors()) -> [{binary(), binary()}].
fields(Request, Cors = #cors{expose = Expose}) ->
    case allowed(weir_http_request:field(<<"origin">>, Request), Cors) of
        [] -> vary(Cors);
        Allowed -> vary(Cors) ++ Allowed ++ [{<<"access-control-expose-headers">>, Expose} || Expose =/= <<>>]
    end.

allowed(undefined, _Cors) ->
    [];
allowed(_Origin, #cors{origins = any}) ->
    [{<<"access-control-allow-origin">>, <<"*">>}];
allowed(Origin, #cors{origins = Origins, credentials = Credentials}) ->
    case lists:member(Origin, Origins) of
        true ->
            [{<<"access-control-allow-origin">>, Origin}
                | [{<<"access-control-allow-credentials">>, <<"true">>} || Credentials]];
        false ->
            []
    end.

%% Caches must know that the response depends on Origin, even if this request has none.
vary(#cors{origins = any}) -> [];
vary(#cors{}) -> [{<<"vary">>, <<"origin">>}].

%% @private
%% @doc Whether a request is a preflight, and for which method.
-spec is_preflight(weir_http_request:request()) -> {true, Method :: binary()} | false.
is_preflight(Request) ->
    Has =
        weir_http_request:method(Request) =:= <<"OPTIONS">> andalso
            weir_http_request:field(<<"origin">>, Request) =/= undefined,
    case Has andalso weir_http_request:field(?METHOD, Request) of
        Method when is_binary(Method) -> {true, Method};
        _ -> false
    end.

%% @private
%% @doc Returns the fields of the response to a preflight.
-spec preflight(weir_http_request:request(), cors()) -> [{binary(), binary()}].
preflight(Request, Cors = #cors{headers = Headers, max_age = MaxAge}) ->
    Vary = [{<<"vary">>, <<"origin, ", ?METHOD/binary, ", ", ?HEADERS/binary>>}],
    case allowed(weir_http_request:field(<<"origin">>, Request), Cors) of
        [] ->
            Vary;
        Allowed ->
            Names =
                case Headers of
                    any -> weir_http_request:field(?HEADERS, Request, <<>>);
                    _ -> Headers
                end,
            Vary ++ Allowed ++
                [{<<"access-control-allow-methods">>, weir_http_request:field(?METHOD, Request)},
                    {<<"access-control-max-age">>, MaxAge}
                    | [{<<"access-control-allow-headers">>, Names} || Names =/= <<>>]]
    end.
