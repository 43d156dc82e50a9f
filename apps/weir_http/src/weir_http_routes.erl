%% @doc Routes: which handler serves which path and method. A value, made once by {@link new/1}.
%%
%% A path consists of literal segments, bindings and at most one wildcard, at its end: `"/users/:id/files/*path"'. A
%% literal segment is preferred to a binding, and a binding to a wildcard. The values of bindings and wildcards are
%% decoded. A wildcard is bound to the list of the remaining segments, at least one. If the path ends in a slash, the
%% last of them is empty.
%%
%% Before matching, `.' and `..' segments (also encoded ones) are removed as in RFC 3986; a path that would leave the
%% root gets 400. Empty segments stay: `/a/' and `/a' are two paths.
-module(weir_http_routes).

-export([new/1]).
-export([find/3]).

-export_type([routes/0, route/0, options/0, constraint/0, target/0, found/0]).

-type route() ::
    {Path :: string() | binary(), Handler :: module(), State :: term()}
    | {Path :: string() | binary(), Handler :: module(), State :: term(), options()}.
%% A handler is a module of the behaviour {@link weir_http_direct} or {@link weir_http_process}. It gets State with
%% every request.

-type options() :: #{
    methods => [binary()],
    constraints => #{Binding :: atom() => constraint()},
    max_body => non_neg_integer(),
    body => whole | stream,
    cors => weir_http_cors:options() | off,
    gzip => weir_http_gzip:options() | off
}.
%% `methods': those that the handler serves (GET, HEAD, POST, PUT, PATCH and DELETE). GET includes HEAD. OPTIONS is
%% answered with the methods of all routes of the path, unless one of them serves it. Other methods get 405.
%% `constraints': the route matches only if its bindings satisfy them. `max_body': overrides the option of the
%% listener. `body' (`whole'): with `stream' a process handler starts when the head has arrived, and reads the body in
%% pieces.
%% `cors' (`off'): which other origins may use the route, see {@link weir_http_cors}.
%% `gzip' (that of the listener): see {@link weir_http_gzip}.

-type constraint() :: integer | fun((binary()) -> {ok, term()} | error).
%% `integer': 1 to 18 decimal digits; the binding is the number. A fun returns the value of the binding, and runs in
%% the reactor. If it raises or returns something else, the client gets a 500 and the failure is logged.

-type target() :: #{
    kind := direct | process,
    handler := weir_http_direct:handler() | weir_http_process:handler(),
    state := term(),
    max_body := non_neg_integer() | default,
    body := whole | stream,
    cors := weir_http_cors:cors() | off,
    gzip := weir_http_gzip:gzip() | default
}.

-type found() ::
    {ok, target(), Bindings :: #{atom() => term()}}
    | {status, 404 | 400}
    | {allow, Status :: 204 | 200 | 405, Allow :: binary()}
    | {preflight, [{binary(), binary()}]}
    | {failed, {error | exit | throw, Reason :: term(), Stack :: list()}}.
%% `allow': answered with a field Allow; no handler is called. `failed': a constraint failed.

-record(node, {
    literals = #{} :: #{binary() => #node{}},
    bindings = [] :: [{Name :: atom(), constraint() | any, #node{}}],
    endpoints = [] :: [endpoint()],
    rest = [] :: [{Name :: atom(), endpoint()}]
}).

-type endpoint() :: {Methods :: [binary()], target()}.

-record(routes, {
    %% Paths without bindings. Most requests are for these.
    exact :: #{binary() => [endpoint()]},
    root :: #node{}
}).

-opaque routes() :: #routes{}.

-define(METHODS, [<<"GET">>, <<"HEAD">>, <<"POST">>, <<"PUT">>, <<"PATCH">>, <<"DELETE">>]).
-define(ROUTE, "{Path, Handler, State} or {Path, Handler, State, Options}").

%% @doc Compiles routes. The first of equal routes wins.
-spec new([route()]) -> {ok, routes()} | {error, {bad_option, routes, Value :: term(), Allowed :: string()}}.
new(Routes) when is_list(Routes) ->
    try
        {ok, lists:foldl(fun add/2, #routes{exact = #{}, root = #node{}}, Routes)}
    catch
        throw:{bad, Value, Allowed} -> {error, {bad_option, routes, Value, Allowed}}
    end;
new(Routes) ->
    {error, {bad_option, routes, Routes, "a list of routes: " ?ROUTE}}.

-spec bad(term(), string()) -> no_return().
bad(Value, Allowed) -> throw({bad, Value, Allowed}).

add({Path, Handler, State}, Routes) ->
    add({Path, Handler, State, #{}}, Routes);
add(Route = {Path, Handler, State, Options}, Routes) when is_map(Options) ->
    Text = text(Path),
    maps:foreach(fun check/2, Options),
    Constraints = maps:get(constraints, Options, #{}),
    Segments = [segment(Part, Constraints) || Part <- tl(binary:split(Text, <<"/">>, [global]))],
    Names = [element(2, Segment) || Segment <- Segments, is_tuple(Segment)],
    length(Names) =:= length(lists:usort(Names)) orelse
        bad(Path, "a path whose binding names are unique"),
    maps:keys(Constraints) -- Names =:= [] orelse bad(Route, "a route with constraints only for bindings of its path"),
    {Kind, Function} = handler(Handler),
    Body = maps:get(body, Options, whole),
    {Kind, Body} =:= {direct, stream} andalso
        bad({body, stream}, "whole: a handler in the reactor is called when the body is complete"),
    Target = #{
        kind => Kind,
        handler => Function,
        state => State,
        max_body => maps:get(max_body, Options, default),
        body => Body,
        cors => cors(maps:get(cors, Options, off)),
        gzip => gzip(maps:get(gzip, Options, default))
    },
    Endpoint = {methods(maps:get(methods, Options, ?METHODS)), Target},
    put_in(Text, Segments, Endpoint, Routes);
add(Other, _Routes) ->
    bad(Other, ?ROUTE).

put_in(Text, Segments, Endpoint, Routes = #routes{exact = Exact, root = Root}) ->
    Whole =
        case lists:all(fun is_binary/1, Segments) of
            true -> Exact#{Text => maps:get(Text, Exact, []) ++ [Endpoint]};
            false -> Exact
        end,
    Routes#routes{exact = Whole, root = put_at(Segments, Endpoint, Root)}.

put_at([], Endpoint, Node = #node{endpoints = Endpoints}) ->
    Node#node{endpoints = Endpoints ++ [Endpoint]};
put_at([{rest, Name}], Endpoint, Node = #node{rest = Rest}) ->
    Node#node{rest = Rest ++ [{Name, Endpoint}]};
put_at([{rest, Name} | _], _Endpoint, _Node) ->
    bad("*" ++ atom_to_list(Name), "a wildcard at the end of its path");
put_at([{binding, Name, Constraint} | Segments], Endpoint, Node = #node{bindings = Bindings}) ->
    {Same, Others} = lists:partition(fun({N, C, _}) -> {N, C} =:= {Name, Constraint} end, Bindings),
    Child =
        case Same of
            [{_, _, Known}] -> Known;
            [] -> #node{}
        end,
    Entry = {Name, Constraint, put_at(Segments, Endpoint, Child)},
    Node#node{bindings = Others ++ [Entry]};
put_at([Literal | Segments], Endpoint, Node = #node{literals = Literals}) ->
    Node#node{literals = Literals#{Literal => put_at(Segments, Endpoint, maps:get(Literal, Literals, #node{}))}}.

text(Path) when is_binary(Path); is_list(Path) ->
    try unicode:characters_to_binary(Path) of
        <<"/", _/binary>> = Text -> Text;
        _ -> bad(Path, "a path that begins with a slash")
    catch
        error:badarg -> bad(Path, "a path: a string or binary that begins with a slash")
    end;
text(Path) ->
    bad(Path, "a path: a string or binary that begins with a slash").

segment(<<":", Name/binary>>, Constraints) when Name =/= <<>> ->
    Binding = binary_to_atom(Name),
    {binding, Binding, maps:get(Binding, Constraints, any)};
segment(<<"*", Name/binary>>, _Constraints) when Name =/= <<>> ->
    {rest, binary_to_atom(Name)};
segment(Literal, _Constraints) ->
    weir_http_percent:decode(Literal).

check(methods, Methods) when is_list(Methods), Methods =/= [] ->
    lists:all(fun is_binary/1, Methods) orelse bad({methods, Methods}, "a list of binaries such as <<\"GET\">>");
check(constraints, Constraints) when is_map(Constraints) ->
    maps:foreach(
        fun(_, C) -> C =:= integer orelse is_function(C, 1) orelse bad(C, "integer, or a fun of one argument") end,
        Constraints
    );
check(max_body, Bytes) when is_integer(Bytes), Bytes >= 0 ->
    ok;
check(body, Body) when Body =:= whole; Body =:= stream ->
    ok;
check(Name, _Checked) when Name =:= cors; Name =:= gzip ->
    ok;
check(Name, Value) ->
    bad(
        {Name, Value},
        "methods => [binary()], constraints => map(), max_body => bytes, body => whole or stream, cors, gzip"
    ).

cors(off) ->
    off;
cors(Options) ->
    case weir_http_cors:new(Options) of
        {ok, Cors} -> Cors;
        {error, Value, Allowed} -> bad({cors, Value}, Allowed)
    end.

gzip(default) ->
    default;
gzip(Options) ->
    case weir_http_gzip:new(Options) of
        {ok, Gzip} -> Gzip;
        {error, Value, Allowed} -> bad({gzip, Value}, Allowed)
    end.

methods(Methods) ->
    case lists:member(<<"GET">>, Methods) of
        true -> lists:uniq([<<"GET">>, <<"HEAD">> | Methods]);
        false -> Methods
    end.

handler(Module) when is_atom(Module) ->
    _ = code:ensure_loaded(Module),
    case {erlang:function_exported(Module, handle, 2), erlang:function_exported(Module, serve, 2)} of
        {true, false} ->
            {direct, fun Module:handle/2};
        {false, true} ->
            {process, fun Module:serve/2};
        _ ->
            bad(
                Module, "a module that exports handle/2 (weir_http_direct) or serve/2 (weir_http_process), and not both"
            )
    end;
handler(Other) ->
    bad(Other, "a module that exports handle/2 or serve/2").

%%% Requests.

%% @doc Finds the target of a request.
-spec find(Method :: binary(), weir_http_request:request(), routes()) -> found().
find(Method, Request, #routes{exact = Exact, root = Root}) ->
    Path = weir_http_request:path(Request),
    IsPlain = weir_http_request:is_plain(Request),
    case Exact of
        #{Path := Endpoints} when IsPlain -> choose(Endpoints, Method);
        #{} when Path =:= <<"*">> -> {allow, 200, allow(?METHODS)};
        #{} -> search(Method, IsPlain, Path, Root)
    end.

choose(Endpoints, Method) ->
    case serving(Method, Endpoints) of
        {ok, Target} -> {ok, Target, #{}};
        none -> unserved(Method, Endpoints)
    end.

serving(Method, [{Methods, Target} | Endpoints]) ->
    case lists:member(Method, Methods) of
        true -> {ok, Target};
        false -> serving(Method, Endpoints)
    end;
serving(_Method, []) ->
    none.

unserved(Method, Endpoints) ->
    Allow = allow(lists:append([Methods || {Methods, _} <- Endpoints])),
    case Method of
        <<"OPTIONS">> -> {allow, 204, Allow};
        _ -> {allow, 405, Allow}
    end.

allow(Methods) ->
    iolist_to_binary(lists:join(", ", lists:uniq(Methods ++ [<<"OPTIONS">>]))).

search(Method, IsPlain, Path, Root) ->
    case segments(IsPlain, Path) of
        {ok, Segments} ->
            try walk(Segments, Root, #{}, Method) of
                {served, Target, Bindings} -> {ok, Target, Bindings};
                {others, []} -> {status, 404};
                {others, Endpoints} -> unserved(Method, Endpoints)
            catch
                Class:Reason:Stack -> {failed, {Class, Reason, Stack}}
            end;
        outside ->
            {status, 400}
    end.

%% @doc Returns the segments of a path, decoded, without dot segments. `outside': `..' leaves the root.
segments(true, Path) ->
    {ok, tl(parts(Path, Path, 0, 0))};
segments(false, Path) ->
    remove_dots([weir_http_percent:decode(Part) || Part <- tl(parts(Path, Path, 0, 0))], []).

%% Splits a path at slashes. For short binaries such as paths, binary:split/3 takes three times as long.
parts(<<$/, Rest/binary>>, Path, From, Length) ->
    [binary:part(Path, From, Length) | parts(Rest, Path, From + Length + 1, 0)];
parts(<<_, Rest/binary>>, Path, From, Length) ->
    parts(Rest, Path, From, Length + 1);
parts(<<>>, Path, From, Length) ->
    [binary:part(Path, From, Length)].

remove_dots([<<"..">> | _], []) -> outside;
remove_dots([<<"..">>], [_ | Before]) -> {ok, lists:reverse(Before, [<<>>])};
remove_dots([<<"..">> | Segments], [_ | Before]) -> remove_dots(Segments, Before);
remove_dots([<<".">>], Before) -> {ok, lists:reverse(Before, [<<>>])};
remove_dots([<<".">> | Segments], Before) -> remove_dots(Segments, Before);
remove_dots([Segment | Segments], Before) -> remove_dots(Segments, [Segment | Before]);
remove_dots([], Before) -> {ok, lists:reverse(Before)}.

%% Returns the target for the method, or the endpoints of the path, none of which serves it.
walk([], #node{endpoints = Endpoints}, Bindings, Method) ->
    case serving(Method, Endpoints) of
        {ok, Target} -> {served, Target, Bindings};
        none -> {others, Endpoints}
    end;
walk(Segments = [Segment | Left], Node = #node{literals = Literals}, Bindings, Method) ->
    case Literals of
        #{Segment := Child} ->
            case walk(Left, Child, Bindings, Method) of
                {others, Others} -> bound(Node#node.bindings, Segments, Node, Bindings, Method, Others);
                Served -> Served
            end;
        #{} ->
            bound(Node#node.bindings, Segments, Node, Bindings, Method, [])
    end.

bound([{Name, Constraint, Child} | Children], Segments = [Segment | Left], Node, Bindings, Method, Others) ->
    case constrained(Constraint, Segment) of
        {ok, Value} ->
            case walk(Left, Child, Bindings#{Name => Value}, Method) of
                {others, More} -> bound(Children, Segments, Node, Bindings, Method, Others ++ More);
                Served -> Served
            end;
        error ->
            bound(Children, Segments, Node, Bindings, Method, Others)
    end;
bound([], Segments, #node{rest = Rest}, Bindings, Method, Others) ->
    wildcard(Rest, Segments, Bindings, Method, Others).

wildcard([{Name, Endpoint} | Rest], Segments, Bindings, Method, Others) ->
    case serving(Method, [Endpoint]) of
        {ok, Target} -> {served, Target, Bindings#{Name => Segments}};
        none -> wildcard(Rest, Segments, Bindings, Method, Others ++ [Endpoint])
    end;
wildcard([], _Segments, _Bindings, _Method, Others) ->
    {others, Others}.

%% An empty segment matches no binding.
constrained(_Constraint, <<>>) ->
    error;
constrained(any, Segment) ->
    {ok, Segment};
constrained(integer, Segment) when byte_size(Segment) =< 18 ->
    try
        {ok, binary_to_integer(Segment)}
    of
        {ok, Number} when Number >= 0, binary_part(Segment, 0, 1) =/= <<"+">>, binary_part(Segment, 0, 1) =/= <<"-">> ->
            {ok, Number};
        _ ->
            error
    catch
        error:badarg -> error
    end;
constrained(integer, _Segment) ->
    error;
constrained(Constraint, Segment) ->
    case Constraint(Segment) of
        {ok, _} = Found -> Found;
        error -> error;
        Other -> error({bad_return_value, Other})
    end.
